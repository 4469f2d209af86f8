"""What a command line gives: flags, a spec file, and trainers' own files between them."""

import inspect
import sys
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from zeroplan.errors import SpecError, UsageError
from zeroplan.records import dataclass

if TYPE_CHECKING:
    from zeroplan.foreign.reading import Reading

__all__ = [
    "FILE_OPTIONS",
    "NO_MODEL",
    "Given",
    "Opened",
    "layered",
    "pop_files",
    "read_given",
    "tell",
]

NO_MODEL: Final = "no model: name one with --model, or in a file given with --spec."
PANEL: Final = "Files"
FORMATS: Final = {
    "deepspeed": "DeepSpeed's JSON; what it leaves open is taken from the other files and flags.",
    "accelerate": "accelerate's YAML, for FSDP or DeepSpeed.",
    "torchtitan": "torchtitan's TOML, of versions 0.1 and 0.2.",
    "training_args": "transformers' TrainingArguments as JSON.",
}
"""Options by the parameter's name; the format is the same with hyphens."""


READ_WITH: Final = (
    "model.source",
    "training.micro_batch_size",
    "training.gradient_accumulation_steps",
    "training.compute_dtype",
    "cluster.gpus",
    "cluster.gpus_per_node",
)
"""Keys with which a trainer's file is read: its batch, its "auto", its groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Checked values by dotted key, and the trainers' files that are still to be read."""

    flags: Mapping[str, object]
    spec: Mapping[str, object] | None
    """None where no spec file is given."""
    files: Mapping[str, str]
    """Paths by format."""
    ignore: tuple[str, ...]


class Opened(NamedTuple):
    """The files of a command line, before they are read."""

    spec: str | None
    files: dict[str, str]
    ignore: tuple[str, ...]


def pop_files(arguments: dict[str, Any]) -> Opened:
    """Take the spec file, the trainers' files and the ignored keys out of a command's arguments."""
    spec = arguments.pop("spec")
    files = {
        name.replace("_", "-"): path
        for name in FORMATS
        if (path := arguments.pop(name)) is not None
    }
    ignore = tuple(arguments.pop("ignore") or ())
    if ignore and not files and not arguments.get("file"):
        raise UsageError(f"--ignore {ignore[0]}: there is no trainer's file whose key it could be.")
    return Opened(spec, files, ignore)


def layered(given: Given, varied: Collection[str] = ()) -> dict[str, object]:
    """Return all values: the spec file lowest, trainers' files over it, flags over all.

    Parameters
    ----------
    given
        What the command line gives.
    varied
        Keys that have several values, which stand elsewhere.

    """
    spec = given.spec or {}
    if not given.files:
        if given.spec is None and "model.source" not in (*given.flags, *varied):
            raise UsageError(NO_MODEL)
        return {**spec, **given.flags}
    bound = [key for key in READ_WITH if key in varied]
    if bound:
        raise UsageError(
            f"{bound[0]} has several values, and what a trainer's file means depends on it: turn the "
            "file into a spec with `zeroplan import`, and give that with --spec."
        )
    reading = read_given(given, given.files)
    tell(reading)
    known = {**spec, **reading.values, **given.flags}
    if "model.source" not in known:
        why = reading.open.get("model.source", "no model: name one with --model")
        raise UsageError(f"{why}.")
    for key, why in reading.open.items():
        if key not in known:
            raise SpecError(f"{why}.")
    return known


def read_given(given: Given, files: Mapping[str, str]) -> "Reading":
    """Read trainers' files beside what else is given."""
    from zeroplan.foreign.reading import read_files  # noqa: PLC0415  # only where there are files

    spec = given.spec or {}
    reading = read_files(files, given.flags, spec, given.ignore)
    for key, value in spec.items():
        other = reading.values.get(key, value)
        if other != value and key not in given.flags:
            reading.remarks.append(
                f"{key} = {value} of the spec file: the trainer's file has {other}"
            )
    return reading


def tell(reading: "Reading") -> None:
    """Write what the user should know to standard error."""
    for remark in reading.remarks:
        sys.stderr.write(f"zeroplan: {remark}.\n")
    if reading.idle:
        named = ", ".join(reading.idle)
        sys.stderr.write(f"zeroplan: without bearing on the estimate: {named}.\n")


def _option(name: str, hint: Any, **settings: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[hint, typer.Option(rich_help_panel=PANEL, **settings)],
    )


FILE_OPTIONS: Final = (
    _option(
        "spec",
        str | None,
        metavar="FILE",
        help="TOML file with any of these keys; - reads standard input. Trainers' files win over "
        "it, and flags over all.",
    ),
    *(_option(name, str | None, metavar="FILE", help=words) for name, words in FORMATS.items()),
    _option(
        "ignore",
        list[str] | None,
        metavar="KEY",
        help="Leave a key of a trainer's file out, such as one that is not modelled; repeat it for "
        "several.",
    ),
)
"""Options of every command that takes a run."""
