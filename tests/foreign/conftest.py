"""Reading a text as a trainer's file."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from zeroplan.foreign.reading import Reading, read_files
from zeroplan.spec.reading import checked, keys

Read = Callable[..., Reading]

ENDINGS = {"deepspeed": "json", "accelerate": "yaml", "torchtitan": "toml", "training-args": "json", "fsdp2": "py"}  # fmt: skip


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read texts by format, with flags by the name of their key."""

    def reading(
        files: Mapping[str, str],
        flags: Mapping[str, object] | None = None,
        ignore: tuple[str, ...] = (),
    ) -> Reading:
        named = {"model": "model.source"} | {key.name: dotted for dotted, key in keys().items()}
        given = checked({named[name]: value for name, value in (flags or {}).items()})
        paths = {}
        for form, text in files.items():
            paths[form] = tmp_path / f"{form}.{ENDINGS[form]}"
            paths[form].write_text(text, encoding="utf-8")
        return read_files(paths, given, {}, ignore)

    return reading
