"""Spoilt files end in one line or in a reading that is still sound, never in a traceback."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from zeroplan.errors import SpecError, UsageError
from zeroplan.foreign.draft import Draft
from zeroplan.foreign.formats import FORMATS, Format
from zeroplan.foreign.parsing import MAX_BYTES
from zeroplan.foreign.reading import read_files, read_text_of
from zeroplan.spec.reading import checked, keys, read_run

HERE = Path(__file__).parent
CASES: list[dict[str, Any]] = tomllib.loads((HERE / "inputs.toml").read_text())["case"]
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
WEIRD = st.sampled_from(
    ["", " ", "auto", "null", "no", "yes", "true", "0", "-1", "1e400", "-5", "9" * 400, "5e8", "[]", "{}", "[[[[", "*a", "&a [x]", "!!python/object:os.system x", "\x00", "\ud7ff", "NaN", "Infinity", "'", '"', "#", "\\", "0x10", "1_000", "2024-01-01", "{{", "a: b", "<<: *a", "\t", "\r\n"]
)  # fmt: skip


@st.composite
def spoilt(draw: Any) -> tuple[Format, str]:
    """Return a file of ours in which lines or pieces are dropped, doubled, swapped or replaced."""
    case = draw(st.sampled_from(CASES))
    form, text = FORMATS[case["format"]], case["text"]
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(0, len(text) - 1)))
        end = draw(st.integers(start, min(len(text), start + 30)))
        piece = draw(
            st.one_of(st.just(""), st.just(text[start:end] * 2), WEIRD, st.text(max_size=8))
        )
        text = text[:start] + piece + text[end:]
    return form, text


@st.composite
def mistyped(draw: Any) -> tuple[Format, str]:
    """Return a file of JSON in which values have another type, or stand one level deeper."""
    case = draw(
        st.sampled_from(
            [
                case
                for case in CASES
                if case["format"] in ("deepspeed", "training-args")
                and "//" not in case["text"]
                and "comes twice" not in case["name"]
            ]
        )
    )
    scalar = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False),
        st.text(max_size=6),
        WEIRD,
    )
    value = st.one_of(
        scalar,
        st.lists(scalar, max_size=3),
        st.dictionaries(st.text(max_size=6), scalar, max_size=3),
    )
    found = json.loads(case["text"]) if "comes twice" not in case.get("refused", ()) else {}
    places = list(_places(found))
    for _ in range(draw(st.integers(1, 3))):
        holder, name = draw(st.sampled_from(places)) if places else (found, "stage")
        holder[name] = draw(value)
    return FORMATS[case["format"]], json.dumps(found)


def _places(found: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    for name, value in list(found.items()):
        yield found, name
        if isinstance(value, dict):
            yield from _places(value)


def _is_sound(form: Format, text: str) -> None:
    """Read: every value is of its key's type and has an origin, or the refusal is one line."""
    refusal, draft = "", Draft("spoilt")
    try:
        draft = read_text_of(form, text, "spoilt")
        read_run({"model.source": "8b"}, draft.values)
    except (SpecError, UsageError) as error:
        refusal = str(error)
    if refusal:
        assert "\n" not in refusal
        assert len(refusal) < 1000
        return
    spelled = {key: "auto" if value is None else value for key, value in draft.values.items()}
    assert checked(spelled) == draft.values
    assert set(draft.origins) == set(draft.values) <= set(keys())


@given(spoilt())
@settings(max_examples=200, deadline=None, suppress_health_check=QUIET)
def test_a_spoilt_file_is_read_soundly_or_refused(given_file: tuple[Format, str]) -> None:
    _is_sound(*given_file)


@given(mistyped())
@settings(max_examples=200, deadline=None, suppress_health_check=QUIET)
def test_a_value_of_another_type_is_read_soundly_or_refused(given_file: tuple[Format, str]) -> None:
    _is_sound(*given_file)


@pytest.mark.slow
@given(st.one_of(spoilt(), mistyped()))
@settings(max_examples=20_000, deadline=None, suppress_health_check=QUIET, phases=[Phase.generate])
def test_twenty_thousand_spoilt_files(given_file: tuple[Format, str]) -> None:
    _is_sound(*given_file)


LAUGHS = "a: &a [x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} {{<<: [{', '.join([f'*{chr(97 + n)}'] * 9)}]}}\n"
    for n in range(9)
)
DEEP = 100_000


@pytest.mark.parametrize(
    ("form", "text", "words"),
    [
        ("accelerate", LAUGHS, "references"),
        ("accelerate", MERGES, "references"),
        ("accelerate", "a: " + "[" * 3000 + "]" * 3000, "nested too deeply"),
        ("deepspeed", '{"a":' * DEEP, "too long|nested too deeply|not JSON"),
        ("deepspeed", '{"a":' * 5000 + "1" + "}" * 5000, "nested too deeply"),
        ("deepspeed", "[" * 50_000, "nested too deeply"),
        ("torchtitan", "a = " + "[" * 3000 + "]" * 3000, "nested too deeply"),
        ("torchtitan", "[" + "a." * 2000 + "b]\nc = 1", "nested too deeply"),
        ("deepspeed", " " * 10_000_000 + "{}", "too long"),
        ("accelerate", "x: 1\n" * 2_000_000, "too long"),
        ("deepspeed", '{"train_batch_size": ' + "9" * 5000 + "}", "not JSON"),
        ("deepspeed", '{"train_batch_size": 1e999}', "train_batch_size"),
        ("deepspeed", '{"train_batch_size": NaN}', "NaN"),
        ("deepspeed", "", "not JSON"),
        ("deepspeed", "[]", "no keys"),
        ("accelerate", "", "no keys"),
        ("accelerate", "a: !!python/object/apply:os.system [true]", "not YAML"),
        ("accelerate", "a: 1\n---\nb: 2", "not YAML"),
        ("accelerate", "? [a, b]\n: 1", "not YAML"),
        ("accelerate", "num_processes: 8\nnum_processes: 16", "comes twice"),
        ("torchtitan", "a = 1\na = 2", "not TOML"),
        ("fsdp2", "import os\nos.system('true')", "REPLICATE"),
        ("fsdp2", "REPLICATE = __import__('os').getpid()", "not Python"),
        ("fsdp2", "REPLICATE = " + "-" * 9000 + "1", "not Python|nested"),
    ],
)
def test_a_hostile_file_is_refused(form: str, text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text(text)
    with pytest.raises(SpecError, match=words):
        read_files({form: path})


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "latin-1"])
def test_another_encoding_is_refused(form: str, encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_bytes("# \xe4\xf6\xfc\n{}".encode(encoding))
    with pytest.raises(SpecError, match="UTF-8"):
        read_files({form: path})


def test_a_byte_order_mark_is_read_over(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_bytes(
        b"\xef\xbb\xbf" + b'{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
    )
    assert read_files({"deepspeed": path}).values["sharding.strategy"] == "zero2"


@pytest.mark.parametrize("name", ["missing.json", ".", "a\0b", "x" * 5000])
def test_a_path_that_is_no_file_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        read_files({"deepspeed": tmp_path / name})


def test_a_file_of_the_longest_length_is_read(tmp_path: Path) -> None:
    text = '{"zero_optimization": {"stage": 1}, "bf16": {"enabled": true}}'
    path = tmp_path / "ds.json"
    path.write_text(text.ljust(MAX_BYTES))
    assert read_files({"deepspeed": path}).values["sharding.strategy"] == "zero1"
