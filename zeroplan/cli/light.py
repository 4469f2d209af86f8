"""Typer commands that start fast.

Only the command that is asked for is imported. Its options stay text: typer would coerce each with a
pydantic adapter, even one that was not given, which takes 0.1 s and knows less than the spec reader.
"""

from importlib import import_module
from typing import Any, Final

from typer import Context
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from zeroplan.errors import UsageError, perhaps

__all__ = ["COMMANDS", "AllCommands", "LightCommand", "LightGroup"]

COMMANDS: Final = (
    "estimate",
    "plan",
    "explain",
    "plot",
    "trace",
    "report",
    "inspect",
    "validate",
    "calibrate",
    "backtest",
    "import",
    "export",
    "hardware",
)
"""Modules of `zeroplan.cli`, each with an `app`, in the order of the help page."""

MODULES: Final = {"import": "import_"}
"""Where a command's name is a word of Python."""


class _LightOption(TyperOption):
    """An option whose text stays text."""

    def process_value(self, ctx: Any, value: Any) -> Any:
        """Leave text and what was not given alone; what has a callback goes on to it."""
        called = isinstance(value, bool) or (value and self.callback)
        return super().process_value(ctx, value) if called else value

    def display_type_rich(self, ctx: Any) -> str | None:
        """Name the value that follows; none follows a switch."""
        return None if self.is_flag else super().display_type_rich(ctx=ctx)


class _LightArgument(TyperArgument):
    """An argument whose text stays text."""

    def process_value(self, ctx: Any, value: Any) -> Any:
        """Leave text alone; typer makes a list of several, and says which one is missing."""
        plain = isinstance(value, str) or (value is None and not self.required)
        return value if plain or ctx.resilient_parsing else super().process_value(ctx, value)


class _LightParameters:
    """What makes a command or a group light."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, typer's own `--help` among them, without their coercion."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of the other base
        for each in params:
            if isinstance(each, TyperOption):
                each.__class__ = _LightOption
            elif isinstance(each, TyperArgument):
                each.__class__ = _LightArgument
        return params


class LightCommand(_LightParameters, TyperCommand):
    """A command whose options are text or switches."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page with the names of all flags whole: they are copied from there."""
        from rich.table import Table  # noqa: PLC0415  # for a help page only
        from typer import rich_utils  # noqa: PLC0415

        class Whole(Table):
            """A panel whose sentences alone give way; typer folds names that are long, too."""

            def add_row(self, *cells: Any, **how: Any) -> None:
                super().add_row(*cells, **how)
                for column in self.columns[:-1]:
                    column.no_wrap = True

        rich_utils.Table = Whole  # type: ignore[attr-defined]  # imported there
        super().format_help(ctx, formatter)


class LightGroup(_LightParameters, TyperGroup):
    """A group whose options are text or switches."""


class AllCommands(LightGroup):
    """The group that imports a command when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # the signature is typer's
        """Return the names of the commands."""
        return list(COMMANDS)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Complete names and options without importing the commands that are offered."""
        named = [TyperCommand(name=name) for name in COMMANDS]
        offered = TyperGroup(name=self.name, commands=named, params=self.params)
        return offered.shell_complete(Context(offered, info_name=ctx.info_name), incomplete)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command by name; a shell that completes behind a wrong one is not told so."""
        if cmd_name not in COMMANDS:
            if ctx.resilient_parsing:
                return None
            raise UsageError(
                f"no command {cmd_name!r}.{perhaps(cmd_name, COMMANDS)}"
                " `zeroplan --help` lists the commands."
            )
        command = get_command(import_module(f"zeroplan.cli.{MODULES.get(cmd_name, cmd_name)}").app)
        command.name = cmd_name
        return command
