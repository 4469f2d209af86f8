"""Trainers' files to checked values of a spec: one file, or several that belong together."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from zeroplan.errors import SpecError
from zeroplan.foreign.draft import Asked, Draft, Ignored
from zeroplan.foreign.formats import FORMATS, Format, values_of
from zeroplan.foreign.parsing import read_text
from zeroplan.foreign.remainder import Kept, kept_in, split_kept
from zeroplan.foreign.sorting import sort_out
from zeroplan.foreign.table import nearest
from zeroplan.foreign.training_args_table import TRAINING_ARGS
from zeroplan.records import dataclass
from zeroplan.spec.reading import checked

__all__ = ["Reading", "read_files", "read_text_of"]

MUST_AGREE: Final = (
    "training.micro_batch_size",
    "training.gradient_accumulation_steps",
    "training.gradient_clipping",
    "training.compute_dtype",
    "cluster.gpus",
)
"""What two files may not say differently: the Trainer, too, stops there (`fill_match`)."""


INLINE: Final = {
    "per_device_train_batch_size": "training.micro_batch_size",
    "max_grad_norm": "training.gradient_clipping",
    "optim": "training.optimizer",
    "max_length": "training.sequence_length",
    "gradient_checkpointing": "training.activation_checkpointing",
}
"""Arguments of the Trainer that people write into a DeepSpeed file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file's values by dotted key, and what zeroplan export kept in it."""

    place: str
    given: dict[str, Any]
    kept: Kept


class Reading:
    """What files amount to: values by spec key, where each came from, and what is to be said."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        self.remarks: list[str] = []
        self.idle: dict[str, str] = {}
        self.open: dict[str, str] = {}

    def add(self, draft: Draft) -> None:
        """Put a file's values over those of the files before it."""
        for key in MUST_AGREE:
            old, new = self.values.get(key), draft.values.get(key)
            if old is not None and new is not None and old != new:
                raise SpecError(
                    f"{key} = {old} by {self.origins[key]}, but {new} by {draft.place}: "
                    f"{draft.origins[key]}. Make the files agree."
                )
        self.values |= draft.values
        name = Path(draft.place).name
        self.origins |= {key: f"{name}: {why}" for key, why in draft.origins.items()}
        self.remarks += [f"{draft.place}: {text}" for text in draft.remarks]
        self.idle |= draft.idle
        self.open |= {key: f"{draft.place}: {why}" for key, why in draft.open.items()}
        for key in self.values:
            self.open.pop(key, None)


def read_files(
    files: Mapping[str, str | Path],
    flags: Mapping[str, object] | None = None,
    spec: Mapping[str, object] | None = None,
    ignore: Iterable[str] = (),
) -> Reading:
    """Read trainers' files together.

    Parameters
    ----------
    files
        Paths by format.
    flags
        Checked spec keys that win over the files.
    spec
        Checked spec keys of a spec file, over which the files win.
    ignore
        Keys of the files that are left out.

    Raises
    ------
    SpecError
        A file is not of its format, contradicts itself or another, or asks for what is not modelled.

    """
    reading, ignored = Reading(), Ignored(ignore)
    sources = {name: _opened(name, Path(path)) for name, path in files.items()}
    for name, form in FORMATS.items():
        if name not in sources:
            continue
        source = sources[name]
        _take_up(form, source, sources)
        asked = Asked(
            flags=flags or {}, spec=spec or {}, files=reading.values, formats=frozenset(sources)
        )
        reading.add(_read(form, source, asked, ignored))
    ignored.check()
    return reading


def read_text_of(form: Format, text: str, place: str) -> Draft:
    """Return what one text amounts to by itself."""
    return _read(
        form, _source(form, text, place), Asked(formats=frozenset((form.name,))), Ignored()
    )


def _opened(name: str, path: Path) -> Source:
    return _source(FORMATS[name], read_text(path), str(path))


def _source(form: Format, text: str, place: str) -> Source:
    given = values_of(form, text, place)
    kept: Kept = {}
    if form.language == "json":
        given, kept = split_kept(given, place)
    else:
        kept = kept_in(text, place)
    return Source(place=place, given=given, kept=kept)


def _take_up(form: Format, source: Source, sources: dict[str, Source]) -> None:
    """Open the DeepSpeed configuration that a file names or holds, unless one is given."""
    names = {"accelerate": "deepspeed_config.deepspeed_config_file", "training-args": "deepspeed"}
    if form.name not in names:
        return
    key = names[form.name]
    start = f"{key}."
    held = {
        name.removeprefix(start): source.given.pop(name)
        for name in [*source.given]
        if name.startswith(start)
    }
    if "deepspeed" in sources:
        return
    written = source.given.get(key)
    if isinstance(written, str) and written.strip():
        beside = Path(source.place).parent / written
        sources["deepspeed"] = _opened("deepspeed", beside if beside.is_file() else Path(written))
    elif form.name == "training-args" and held:
        sources["deepspeed"] = Source(place=f"{source.place}: deepspeed", given=held, kept={})


def _read(form: Format, source: Source, asked: Asked, ignored: Ignored) -> Draft:
    """Read one file; what zeroplan export kept in it comes last."""
    draft = Draft(source.place)
    kept = {key: values[0] for key, values in source.kept.items()}
    known = checked({key: value for key, value in kept.items() if value != "auto"})
    asked = Asked(
        flags=asked.flags, spec=asked.spec, files={**known, **asked.files}, formats=asked.formats
    )
    given = source.given
    if form.name == "deepspeed":
        inline = {key: value for key, value in given.items() if _of_trainer(form, key)}
        given = {key: value for key, value in given.items() if key not in inline}
        asked = _with_inline(inline, draft, asked, ignored)
    form.read(sort_out(given, form.table, draft, ignored), draft, asked)
    for key, (value, *instead) in source.kept.items():
        _restore(key, value, instead, draft)
    return draft


def _restore(key: str, value: object, instead: list[object], draft: Draft) -> None:
    """Set what an exported file keeps, unless its own keys have changed since."""
    now = draft.values.get(key)
    if instead and instead[0] != ("auto" if now is None else now):
        draft.remark(f"{key} has changed since the export: the file's own {now} counts")
        return
    draft.set(key, value, "kept by zeroplan export")
    if instead and value != "auto":
        draft.remark(
            f"{key} = {value} is kept by zeroplan export; the trainer itself has {instead[0]}"
        )


def _of_trainer(form: Format, key: str) -> bool:
    """Whether a key is one of TrainingArguments' own, not of the format's."""
    if nearest(form.table, key) is not None:
        return False
    entry = nearest(TRAINING_ARGS, key)
    return entry is not None and entry.use != "idle"


def _with_inline(inline: Mapping[str, Any], draft: Draft, asked: Asked, ignored: Ignored) -> Asked:
    """Return what is known with TrainingArguments' own names in a DeepSpeed file."""
    if not inline:
        return asked
    own = Draft(draft.place)
    found = sort_out(inline, TRAINING_ARGS, own, ignored)
    FORMATS["training-args"].read(found, own, asked)
    for name, key in INLINE.items():
        if found.says(name):
            draft.set(key, own.values[key], f"{name}, inline")
    for name in sorted(inline):
        draft.remark(
            f"{name} is an argument of the Trainer, read as that; DeepSpeed does not read it"
        )
    return Asked(
        flags=asked.flags,
        spec=asked.spec,
        files={**asked.files, **draft.values},
        formats=asked.formats,
    )
