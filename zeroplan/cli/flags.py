"""Every key of the spec file as a flag: made from the records, never typed twice."""

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING
from functools import partial, wraps
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperOption

from zeroplan.cli.completion import OFFERED, offer, words
from zeroplan.cli.given import FILE_OPTIONS, Given, Opened, layered, pop_files
from zeroplan.cli.light import LightCommand
from zeroplan.errors import SpecError, UsageError
from zeroplan.schemas import sentences
from zeroplan.spec import run
from zeroplan.spec.hints import describe, has_commas, kind, literals, parse, spelled
from zeroplan.spec.reading import Key, checked, keys, read_run
from zeroplan.spec.toml import read_file

__all__ = [
    "Asked",
    "SpecCommand",
    "flag",
    "takes_given",
    "takes_later",
    "takes_run",
    "takes_run_or_none",
    "takes_several",
]

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

MOST_USED: Final = (
    "model.source",
    "cluster.gpus",
    "cluster.gpu",
    "cluster.link",
    "sharding.strategy",
    "training.sequence_length",
    "training.micro_batch_size",
)
"""Keys whose flags a help page shows before all others."""


DOTTED: Final = re.compile(r"(?<![\w./'\"`-])(?:\w+\.)+\w+")
"""What may be the whole name of a key in a message."""

BARE: Final = re.compile(r"(?<![\w./'\"`-])(?:\w+_\w+|\w+(?= = ))(?![\w/'\"`-]|\.\w)")
"""What may be its name alone: a word with an underscore, or one before an equals sign."""

Texts = Mapping[str, str | None]


class SpecCommand(LightCommand):
    """A command with spec flags: `--compile` is `--compile true`, `--no-compile` the contrary."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Write out the values that switches leave unsaid; nothing at all asks for help."""
        return super().parse_args(ctx, _spelled_out(args) or ["--help"])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the keys, whose sentences no answer needs, those most used first."""
        of_keys = {_parameter_name(dotted): key for dotted, key in keys().items()}
        for option in self.params:
            if isinstance(option, TyperOption) and option.help is None:
                option.help = _help(of_keys[str(option.name)])
        places = {_parameter_name(dotted): place for place, dotted in enumerate(MOST_USED)}
        self.params.sort(key=lambda option: places.get(str(option.name), len(places)))
        for option in self.params[: len(places)]:
            if isinstance(option, TyperOption) and option.name in places:
                option.rich_help_panel = "Most used"
        super().format_help(ctx, formatter)


def _takes(
    command: Callable[..., None], read: Callable[..., object], *, several: bool = False
) -> Callable[..., None]:
    """Give a command the flags of every spec key; its first argument is what is read from them.

    With `several` a shell completes values between commas. A flag of its own comes before a key's
    of the same name, which only a file then sets.
    """
    _, *own = inspect.signature(command).parameters.values()
    named = {parameter.name for parameter in own}
    given = [dotted for dotted in keys() if _parameter_name(dotted) not in named]

    @wraps(command)
    def with_run(**arguments: Any) -> None:
        texts = {dotted: arguments.pop(_parameter_name(dotted)) for dotted in given}
        opened = pop_files(arguments)
        if not several:
            _refuse_several(texts, command.__name__.rstrip("_"))
        try:
            command(read(opened, texts), **arguments)
        except (SpecError, UsageError) as error:
            error.args = (_as_flags(str(error), opened, texts, named),)
            raise

    options = [_option(dotted, several) for dotted in given]
    with_run.__signature__ = inspect.Signature([*options, *FILE_OPTIONS, *own])  # type: ignore[attr-defined]  # how inspect is told
    return with_run


def _refuse_several(texts: Texts, command: str) -> None:
    for dotted, text in texts.items():
        if text is not None and len(_split(dotted, text)) > 1:
            raise UsageError(
                f"{flag(dotted)} = {text!r}: `zeroplan {command}` answers one at a time: give it "
                "one value. `zeroplan estimate` lays several side by side."
            )


def _as_flags(message: str, opened: Opened, texts: Texts, own: Collection[str]) -> str:
    """Name the keys of a message as they were given: as flags, where no file could have them too.

    Bare names, the command's own among them, are replaced only beside a dotted one, since profiles
    have keys of the same name. Where no flag is given a table or a record has said what runs.
    """
    given = {key: flag(key) for key, text in texts.items() if text is not None}
    if not given or (opened.spec and message.startswith((f"{opened.spec}: ", "standard input: "))):
        return message
    named = given if opened.spec or opened.files else {key: flag(key) for key in texts}
    told = DOTTED.sub(lambda found: named.get(found[0], found[0]), message)
    bare = {key.rpartition(".")[2]: shown for key, shown in named.items()}
    bare |= {name: f"--{name.replace('_', '-')}" for name in own}
    return message if told == message else BARE.sub(lambda f: bare.get(f[0], f[0]), told)


def takes_run(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of every spec key; its first argument is the run they describe."""
    return _takes(command, lambda opened, texts: read_run(layered(_given(opened, texts))))


def takes_given(command: Callable[..., None]) -> Callable[..., None]:
    """Do the same without putting it together; the first argument is `Given`."""
    return _takes(command, _given)


def takes_run_or_none(command: Callable[..., None]) -> Callable[..., None]:
    """Do the same where a command can do without: the first argument is None if no key is given."""

    def read(opened: Opened, texts: Texts) -> run.Run | None:
        if not (opened.spec or opened.files or any(texts.values())):
            return None
        return read_run(layered(_given(opened, texts)))

    return _takes(command, read)


def takes_later(command: Callable[..., None]) -> Callable[..., None]:
    """Do the same; the first argument is a function that reads the flags into `Asked`.

    It takes whether a model must be named.
    """
    return _takes(command, lambda opened, texts: partial(_asked, opened, texts), several=True)


def takes_several(command: Callable[..., None]) -> Callable[..., None]:
    """Do the same where a flag may have several values; the first argument is `Asked`."""
    return _takes(command, _asked, several=True)


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


def _asked(opened: Opened, texts: Texts, *, model: bool = True) -> Asked:
    several = {dotted: _split(dotted, text) for dotted, text in texts.items() if text is not None}
    single = {dotted: found[0] for dotted, found in several.items() if len(found) == 1}
    varied = {
        dotted: [_checked({dotted: text})[dotted] for text in found]
        for dotted, found in several.items()
        if len(found) > 1
    }
    elsewhere = varied if model else {*varied, "model.source"}
    return Asked(layered(_given(opened, single), tuple(elsewhere)), varied)


def _split(dotted: str, text: str) -> list[str]:
    """Return the values that stand between commas, each once; 8..64 is 8, 16, 32, 64."""
    if has_commas(keys()[dotted].hint) or (dotted == "model.source" and Path(text).exists()):
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


def _given(opened: Opened, texts: Texts) -> Given:
    given = {dotted: text for dotted, text in texts.items() if text is not None}
    spec = read_file(opened.spec) if opened.spec else None
    return Given(flags=_checked(given), spec=spec, files=opened.files, ignore=opened.ignore)


def _checked(texts: Mapping[str, str]) -> dict[str, object]:
    return checked({name: parse(keys()[name].hint, text) for name, text in texts.items()}, flag)


def flag(dotted: str) -> str:
    """Return the flag of a key."""
    name = _NAMES.get(dotted, dotted.rpartition(".")[2])
    return f"--{name.replace('_', '-')}"


def _parameter_name(dotted: str) -> str:
    return flag(dotted)[2:].replace("-", "_")


def _option(dotted: str, several: bool) -> inspect.Parameter:
    key = keys()[dotted]
    sort = kind(key.hint)
    listed = ("true", "false") if sort == "BOOL" else literals(key.hint)
    known = OFFERED.get(dotted) or words(*listed)
    option = typer.Option(
        *filter(None, (flag(dotted), _SHORT.get(dotted))),
        metavar=sort,
        rich_help_panel=_PANELS[key.table],
        autocompletion=offer(known, several=several and sort != "BOOL"),
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
    sentence = sentences(key.record)[key.name]
    return f"{sentence} [{'; '.join(facts)}]".removesuffix(" []").replace("[", "\\[")


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
