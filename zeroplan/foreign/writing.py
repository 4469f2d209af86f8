"""A plan as the file that a trainer loads.

The trainer's own keys say what they can. What they cannot is kept beside them for zeroplan, so that
the file reads back as the same spec; what the trainer does otherwise than planned is told.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from zeroplan.errors import UsageError, perhaps
from zeroplan.foreign.draft import Draft
from zeroplan.foreign.formats import FORMATS
from zeroplan.foreign.fsdp2 import write_fsdp2
from zeroplan.foreign.reading import read_text_of
from zeroplan.foreign.remainder import Kept, as_comments, as_key
from zeroplan.foreign.to_accelerate import to_accelerate
from zeroplan.foreign.to_deepspeed import to_deepspeed
from zeroplan.foreign.to_torchtitan import to_torchtitan
from zeroplan.records import dataclass
from zeroplan.spec.reading import flatten, keys
from zeroplan.spec.run import Run
from zeroplan.spec.toml import to_dict

__all__ = ["WRITTEN", "Written", "write_file"]

WRITTEN: Final = ("deepspeed", "accelerate", "torchtitan", "fsdp2")
USUAL: Final = {"training.reduce_dtype": "fp32"}
"""What "auto" is where it is not what the file's reader takes it for."""
HEADS: Final = {
    "accelerate": "# Written by zeroplan export. accelerate launch --config_file THIS_FILE\n",
    "torchtitan": "# Written by zeroplan export, for torchtitan 0.2.\n",
    "fsdp2": "# Written by zeroplan export: shard(model, model.layers), then train as usual.\n",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file's text, and what its trainer does otherwise than planned."""

    text: str
    remarks: tuple[str, ...]


def write_file(run: Run, name: str, shard_size: int) -> Written:
    """Return a run, whose open keys are filled, as a trainer's file.

    Parameters
    ----------
    run
        A run with one strategy, and GPUs per node.
    name
        One of `WRITTEN`.
    shard_size
        Ranks that share one copy of the sharded state [count].

    Raises
    ------
    SpecError
        The trainer has no such strategy.

    """
    if name not in WRITTEN:
        raise UsageError(f"--format {name!r}: use {', '.join(WRITTEN)}.{perhaps(name, WRITTEN)}")
    plain = _text(run, name, shard_size, {})
    draft = read_text_of(FORMATS[name], plain, f"exported {name}")
    kept, remarks = _kept(run, draft, FORMATS[name].title)
    return Written(text=_text(run, name, shard_size, kept), remarks=tuple(remarks))


def _kept(run: Run, draft: Draft, title: str) -> tuple[Kept, list[str]]:
    """Return what the file's own keys do not say, and what differs from the plan there."""
    known = keys()
    kept: dict[str, tuple[Any, ...]] = {}
    remarks = []
    for key, value in flatten(to_dict(run)).items():
        read = draft.values.get(key, known[key].default)
        shown = "auto" if read is None else read
        if value == shown and type(value) is type(shown):
            continue
        if key not in draft.values:
            kept[key] = (value,)
            continue
        kept[key] = (value, shown)
        meant = USUAL.get(key, value) if value == "auto" else value
        if meant not in ("auto", shown):
            remarks.append(
                f"{title} itself has {key} = {_said(shown)}; the plan has {_said(meant)}"
            )
    return kept, remarks


def _said(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text(run: Run, name: str, shard_size: int, kept: Kept) -> str:
    if name == "deepspeed":
        return json.dumps(_nested(to_deepspeed(run)) | as_key(kept), indent=2) + "\n"
    head = HEADS[name] + as_comments(kept)
    if name == "fsdp2":
        return head + write_fsdp2(run, shard_size)
    if name == "accelerate":
        import yaml  # noqa: PLC0415  # only where there is YAML to write

        values = _nested(to_accelerate(run, shard_size))
        return head + str(yaml.safe_dump(values, sort_keys=False))
    return head + _toml(to_torchtitan(run, shard_size))


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by dotted key as tables in one another."""
    found: dict[str, Any] = {}
    for key, value in flat.items():
        *blocks, name = key.split(".")
        inner = found
        for block in blocks:
            inner = inner.setdefault(block, {})
        inner[name] = value
    return found


def _toml(flat: Mapping[str, Any]) -> str:
    lines: list[str] = []
    current = ""
    for key, value in flat.items():
        table, _, name = key.rpartition(".")
        if table != current:
            lines += ["", f"[{table}]"]
            current = table
        lines.append(f"{name} = {json.dumps(value)}")
    return "\n".join(lines).lstrip("\n") + "\n"
