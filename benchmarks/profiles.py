"""Set numbers of a GPU's profile, for the scripts that fit them."""

import re
from collections.abc import Mapping
from pathlib import Path

GPUS = Path(__file__).parents[1] / "hardware_profiles" / "gpus"


def rewrite(gpu_id: str, values: Mapping[str, str]) -> None:
    """Set the values of tables of a profile, by their keys; a changed one raises the revision."""
    file = GPUS / f"{gpu_id}.toml"
    text = before = file.read_text(encoding="utf-8")
    for key, value in values.items():
        text = re.sub(rf"(\[{re.escape(key)}\]\nvalue = )\S+", rf"\g<1>{value}", text)
    if text != before:
        text = re.sub(r"(revision = )(\d+)", lambda m: f"{m[1]}{int(m[2]) + 1}", text, count=1)
        file.write_text(text, encoding="utf-8")
        print(f"wrote {file.name}")
