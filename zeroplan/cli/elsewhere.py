"""Which commands have an option that the one at hand lacks: looked up when that goes wrong."""

from collections.abc import Iterator
from typing import Any, Final

from typer import Context
from typer.main import get_command

__all__ = ["told_owners"]

NAMED: Final = 3
"""Commands that a message names. [count]"""


def told_owners(option: str, app: Any) -> str:
    """Say which commands have an option; an empty string where none has.

    Parameters
    ----------
    option
        The option as it is typed, with its hyphens.
    app
        The whole program; each of its commands is imported to be asked.

    """
    program = get_command(app)
    owners = [f"`{path}`" for path in _owners(option, program, "zeroplan")]
    if not owners:
        return ""
    shown = owners[:NAMED] if len(owners) <= NAMED else [*owners[:NAMED], "others"]
    *first, last = shown
    return f"{option} belongs to {', '.join(first) + ' and ' if first else ''}{last}."


def _owners(option: str, command: Any, path: str) -> Iterator[str]:
    """Yield the paths of a command and those below it that have an option, in their order."""
    if any(option in (*each.opts, *each.secondary_opts) for each in command.params):
        yield path
    if hasattr(command, "list_commands"):
        context = Context(command, info_name=path)
        for name in command.list_commands(context):
            yield from _owners(option, command.get_command(context, name), f"{path} {name}")
