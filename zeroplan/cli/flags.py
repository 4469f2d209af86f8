"""Every key of the spec file as a flag: made from the records, never typed twice."""

import ast
import inspect
from collections.abc import Callable
from dataclasses import MISSING
from functools import cache, wraps
from itertools import pairwise
from typing import Annotated, Any, Final

import typer
from typer.core import TyperOption

from zeroplan.cli.given import FILE_OPTIONS, Given, pop_files, run_of
from zeroplan.cli.light import LightCommand
from zeroplan.spec import deepspeed, run, tuning
from zeroplan.spec.hints import describe, kind, literals, parse, spelled
from zeroplan.spec.reading import Key, checked, keys
from zeroplan.spec.toml import read_file

__all__ = ["SpecCommand", "takes_given", "takes_run"]

_NAMES: Final = {"model.source": "model", "sharding.deepspeed.version": "deepspeed-version"}
"""Names that are not the key's own: it would be too short, or is another option's."""
_SHORT: Final = {
    "model.source": "-m",
    "training.sequence_length": "-s",
    "training.micro_batch_size": "-b",
    "cluster.gpus": "-n",
}
_PANELS: Final = {
    "model": "Model",
    "training": "Training",
    "tuning": "Tuning",
    "sharding": "Sharding",
    "sharding.deepspeed": "DeepSpeed",
    "cluster": "Cluster",
}


class SpecCommand(LightCommand):
    """A command with spec flags: `--compile` is `--compile true`, `--no-compile` the contrary."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Write out the values that switches leave unsaid; nothing at all asks for help."""
        return super().parse_args(ctx, _spelled_out(args) or ["--help"])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the keys, whose sentences no answer needs."""
        of_keys = {_parameter_name(dotted): key for dotted, key in keys().items()}
        for option in self.params:
            if isinstance(option, TyperOption) and option.help is None:
                option.help = _help(of_keys[str(option.name)])
        super().format_help(ctx, formatter)


def takes_run(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of every spec key; its first argument is the run they describe.

    A flag of its own comes before a key's of the same name, which only a file then sets.
    """
    return _takes(command, run_of)


def takes_given(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the same flags; its first argument is what they say, which may lack a model."""
    return _takes(command, lambda given: given)


def _takes(command: Callable[..., None], made: Callable[[Given], Any]) -> Callable[..., None]:
    _, *own = inspect.signature(command).parameters.values()
    named = {parameter.name for parameter in own}
    given = [dotted for dotted in keys() if _parameter_name(dotted) not in named]

    @wraps(command)
    def with_run(**arguments: Any) -> None:
        texts = {dotted: arguments.pop(_parameter_name(dotted)) for dotted in given}
        command(made(_given(texts, arguments)), **arguments)

    with_run.__signature__ = inspect.Signature([*map(_option, given), *FILE_OPTIONS, *own])  # type: ignore[attr-defined]  # how inspect is told
    return with_run


def _given(texts: dict[str, str | None], arguments: dict[str, Any]) -> Given:
    """Return what flags and files say; the options of files are taken out of the arguments."""
    flags = {
        dotted: parse(keys()[dotted].hint, text)
        for dotted, text in texts.items()
        if text is not None
    }
    spec, files, ignore = pop_files(arguments)
    return Given(
        flags=checked(flags, _flag),
        spec=read_file(spec) if spec else None,
        files=files,
        ignore=ignore,
    )


def _flag(dotted: str) -> str:
    name = _NAMES.get(dotted, dotted.rpartition(".")[2])
    return f"--{name.replace('_', '-')}"


def _parameter_name(dotted: str) -> str:
    return _flag(dotted)[2:].replace("-", "_")


def _option(dotted: str) -> inspect.Parameter:
    key = keys()[dotted]
    words = literals(key.hint)
    option = typer.Option(
        *filter(None, (_flag(dotted), _SHORT.get(dotted))),
        metavar=kind(key.hint),
        rich_help_panel=_PANELS[key.table],
        autocompletion=(lambda: words) if words else None,
    )
    return inspect.Parameter(
        _parameter_name(dotted),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[str | None, option],
    )


def _help(key: Key) -> str:
    """Return a key's sentence, its words and its default, safe from rich's markup."""
    facts = [describe(key.hint)] if kind(key.hint) == "WORD" else []
    if key.default is not MISSING:
        facts.append(f"default: {spelled(key.default)}")
    sentence = inspect.cleandoc(_sentences()[key.record.__name__, key.name])
    return f"{sentence} [{'; '.join(facts)}]".removesuffix(" []").replace("[", "\\[")


@cache
def _sentences() -> dict[tuple[str, str], str]:
    """Return the sentence under each field of the records, which only their source holds."""
    trees = (ast.parse(inspect.getsource(module)) for module in (run, tuning, deepspeed))
    return {
        (record.name, field.target.id): ast.literal_eval(doc.value)
        for tree in trees
        for record in tree.body
        if isinstance(record, ast.ClassDef)
        for field, doc in pairwise(record.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(doc, ast.Expr)
    }


def _spelled_out(args: list[str]) -> list[str]:
    switches = {_flag(dotted) for dotted, key in keys().items() if kind(key.hint) == "BOOL"}
    spelled = []
    for arg, following in pairwise([*args, "-"]):
        positive = arg.replace("--no-", "--", 1)
        if arg in switches and following.startswith("-"):
            spelled.append(f"{arg}=true")
        elif arg not in switches and positive in switches:
            spelled.append(f"{positive}=false")
        else:
            spelled.append(arg)
    return spelled
