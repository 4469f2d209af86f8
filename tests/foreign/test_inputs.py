"""Small files, odd ones among them, mean what their trainers take them for."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from zeroplan.errors import SpecError
from zeroplan.foreign.formats import FORMATS, chosen

HERE = Path(__file__).parent
CASES: list[dict[str, Any]] = tomllib.loads((HERE / "inputs.toml").read_text())["case"]
READ = [case for case in CASES if "refused" not in case]
REFUSED = [case for case in CASES if "refused" in case]
DETECTED = {
    "accelerate": "a.yaml",
    "torchtitan": "a.toml",
    "deepspeed": "a.json",
    "training-args": "a.json",
}


@pytest.mark.parametrize("case", READ, ids=lambda case: case["name"])
def test_a_file_is_read(case: dict[str, Any], read: Any) -> None:
    found = read({case["format"]: case["text"]}, case.get("flags"), tuple(case.get("ignore", ())))
    expected = case.get("spec", {})
    assert {key: found.values.get(key) for key in expected} == expected
    assert set(found.origins) == set(found.values)
    remarks = "\n".join(found.remarks)
    assert [words for words in case.get("remarks", ()) if words not in remarks] == []
    assert set(case.get("idle", ())) <= set(found.idle)
    assert set(case.get("open", ())) <= set(found.open)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["name"])
def test_a_file_is_refused_with_place_value_and_remedy(case: dict[str, Any], read: Any) -> None:
    with pytest.raises(SpecError) as refusal:
        read({case["format"]: case["text"]}, case.get("flags"))
    message = str(refusal.value)
    assert [words for words in case["refused"] if words not in message] == []
    assert "\n" not in message


@pytest.mark.parametrize(
    "case",
    [case for case in REFUSED if "--ignore" in case["refused"]],
    ids=lambda case: case["name"],
)
def test_what_is_not_modelled_can_be_left_out_by_name(case: dict[str, Any], read: Any) -> None:
    with pytest.raises(SpecError) as refusal:
        read({case["format"]: case["text"]}, case.get("flags"))
    key = str(refusal.value).partition("--ignore ")[2].split()[0].rstrip(".,")
    assert read({case["format"]: case["text"]}, case.get("flags"), (key,)).values


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_format_of_a_file_is_seen(case: dict[str, Any]) -> None:
    if "comes twice" in case.get("refused", ()):
        return
    assert chosen(None, Path(DETECTED[case["format"]]), case["text"]) is FORMATS[case["format"]]
