"""A stranger's config.json is data: bad ones get one clear line."""

from pathlib import Path

import pytest

from zeroplan.errors import SpecError
from zeroplan.spec.config_json import MAX_BYTES, read_config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1, column 2: not JSON"),
        ("", "line 1, column 1: not JSON"),
        ("[1, 2]", "holds one object, not a list"),
        ('{"hidden_size": NaN}', "a value is NaN"),
        ('{"a": 1, "a": 2}', "key 'a' is given twice: 1 and 2"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "digits"),
    ],
)
def test_a_file_that_is_no_config_is_refused_in_one_line(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(SpecError, match=message) as caught:
        read_config(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_too_long_is_not_even_read(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    with file.open("wb") as handle:
        handle.truncate(2 * 10**9)  # sparse: costs no disk
    with pytest.raises(SpecError, match=f"too long for a config.json; at most {MAX_BYTES}"):
        read_config(file)


@pytest.mark.parametrize("name", ["absent.json", "a\0b", "x" * 5000])
def test_a_path_that_leads_nowhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpecError, match=r"no such file|cannot be read"):
        read_config(tmp_path / name)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(b"\x80\x81")
    with pytest.raises(SpecError, match="cannot be read as text"):
        read_config(file)


def test_a_folder_means_the_config_in_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert read_config(tmp_path) == {"model_type": "llama"}


def test_infinity_is_read_since_published_files_hold_it(tmp_path: Path) -> None:
    """Mamba 2 writes `time_step_limit` as [0.0, Infinity]."""
    (tmp_path / "config.json").write_text('{"time_step_limit": [0.0, Infinity]}')
    assert read_config(tmp_path) == {"time_step_limit": [0.0, float("inf")]}
