"""Every key of the spec file as a flag: made from the records, never typed twice."""

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from functools import cache, partial, wraps
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperOption

from zeroplan.cli.light import LightCommand
from zeroplan.errors import UsageError
from zeroplan.spec import deepspeed, run, tuning
from zeroplan.spec.hints import describe, kind, literals, parse, spelled
from zeroplan.spec.reading import Key, checked, keys, read_run
from zeroplan.spec.toml import read_file

__all__ = ["Asked", "SpecCommand", "flag", "takes_later", "takes_run", "takes_several"]

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


_LISTS: Final = frozenset({"tuning.lora_targets", "tuning.trainable"})
"""Keys whose one value may have commas in it."""

Texts = Mapping[str, str | None]
Layers = tuple[dict[str, object], dict[str, object]]


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


def _takes(command: Callable[..., None], read: Callable[..., object]) -> Callable[..., None]:
    """Give a command the flags of every spec key; its first argument is what is read from them.

    A flag of its own comes before a key's of the same name, which only a file then sets.
    """
    _, *own = inspect.signature(command).parameters.values()
    named = {parameter.name for parameter in own}
    given = [dotted for dotted in keys() if _parameter_name(dotted) not in named]

    @wraps(command)
    def with_run(**arguments: Any) -> None:
        texts = {dotted: arguments.pop(_parameter_name(dotted)) for dotted in given}
        command(read(arguments.pop("spec"), texts), **arguments)

    with_run.__signature__ = inspect.Signature([*map(_option, given), _SPEC, *own])  # type: ignore[attr-defined]  # how inspect is told
    return with_run


def takes_run(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of every spec key; its first argument is the run they describe."""
    return _takes(command, lambda spec, texts: read_run(*_layers(spec, texts)))


def takes_later(command: Callable[..., None]) -> Callable[..., None]:
    """Do the same; the first argument is a function that reads the flags into `Asked`.

    It takes whether a model must be named.
    """
    return _takes(command, lambda spec, texts: partial(_asked, spec, texts))


def takes_several(command: Callable[..., None]) -> Callable[..., None]:
    """Do the same where a flag may have several values; the first argument is `Asked`."""
    return _takes(command, _asked)


class Asked(NamedTuple):
    """What the flags and the file say."""

    values: dict[str, object]
    """Checked values by dotted key, those that vary left out."""
    varied: dict[str, list[object]]
    """Checked values of keys that have several, in the order of the spec file."""

    @property
    def run(self) -> run.Run:
        """The run, where nothing varies."""
        return read_run(self.values)


def _asked(spec: str | None, texts: Texts, *, model: bool = True) -> Asked:
    several = {dotted: _split(dotted, text) for dotted, text in texts.items() if text is not None}
    single = {dotted: found[0] for dotted, found in several.items() if len(found) == 1}
    varied = {
        dotted: [_checked({dotted: text})[dotted] for text in found]
        for dotted, found in several.items()
        if len(found) > 1
    }
    file, given = _layers(spec, single, named=not model or "model.source" in varied)
    return Asked({**file, **given}, varied)


def _split(dotted: str, text: str) -> list[str]:
    """Return the values that stand between commas, each once; 8..64 is 8, 16, 32, 64."""
    if dotted in _LISTS or (dotted == "model.source" and Path(text).exists()):
        return [text]
    parts = (each for part in text.split(",") for each in _doubled(part.strip()))
    found = list(dict.fromkeys(parts))
    if "" in found and len(found) > 1:
        raise UsageError(f"{flag(dotted)} = {text!r}: a value is missing beside a comma.")
    return found


def _doubled(text: str) -> list[str]:
    least, _, most = text.partition("..")
    if not (least.isdecimal() and most.isdecimal() and 0 < int(least) <= int(most)):
        return [text]
    count = (int(most) // int(least)).bit_length()
    return [str(int(least) << doubling) for doubling in range(count)]


def _layers(spec: str | None, texts: Texts, *, named: bool = False) -> Layers:
    """Return the values of the spec file, and those of the flags that come on top."""
    given = {dotted: text for dotted, text in texts.items() if text is not None}
    if spec is None and "model.source" not in given and not named:
        raise UsageError("no model: name one with --model, or in a file given with --spec.")
    return read_file(spec) if spec else {}, _checked(given)


def _checked(texts: Mapping[str, str]) -> dict[str, object]:
    return checked({name: parse(keys()[name].hint, text) for name, text in texts.items()}, flag)


def flag(dotted: str) -> str:
    """Return the flag of a key."""
    name = _NAMES.get(dotted, dotted.rpartition(".")[2])
    return f"--{name.replace('_', '-')}"


def _parameter_name(dotted: str) -> str:
    return flag(dotted)[2:].replace("-", "_")


def _option(dotted: str) -> inspect.Parameter:
    key = keys()[dotted]
    words = literals(key.hint)
    option = typer.Option(
        *filter(None, (flag(dotted), _SHORT.get(dotted))),
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
    switches = {flag(dotted) for dotted, key in keys().items() if kind(key.hint) == "BOOL"}
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


_SPEC: Final = inspect.Parameter(
    "spec",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="TOML file with any of these keys; - reads standard input. Flags win over it.",
            rich_help_panel="Model",
        ),
    ],
)
