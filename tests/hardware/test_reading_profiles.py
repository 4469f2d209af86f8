"""A fault in a profile file is told with its place, its value and the remedy."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroplan.errors import SpecError
from zeroplan.hardware import Link, load_catalogue
from zeroplan.hardware.read import Source, read_profile, read_sources

SOURCES = {"bench": Source(title="A bench of our own")}

GOOD = """\
schema_version = 1
id = "cable"
revision = 1
name = "A cable"
kind = "ethernet"
scope = "cluster"
bandwidth_bytes_per_second = { value = 1e9, kind = "measured", source = "bench" }
bandwidth_efficiency = { value = 0.5, kind = "measured", source = "bench" }
latency_seconds = { value = 1e-5, kind = "assumed", source = "bench", rel_uncertainty = 0.5 }
base_seconds = { value = 1e-5, kind = "measured", source = "bench" }
small_message_efficiency = { value = 0.3, kind = "measured", source = "bench" }
small_message_latency_seconds = { value = 1e-6, kind = "measured", source = "bench" }
small_message_base_seconds = { value = 1e-6, kind = "measured", source = "bench" }
nics_per_node = { value = 1, kind = "measured", source = "bench" }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("links")


def read(folder: Path, text: str) -> Link:
    path = folder / "cable.toml"
    path.write_text(text, encoding="utf-8")
    return read_profile(path, Link, SOURCES)


def test_a_good_file_becomes_a_record(folder: Path) -> None:
    link = read(folder, GOOD)
    assert link.id == "cable"
    assert link.latency_seconds.value == 1e-5
    assert link.latency_seconds.unit == "s"
    assert link.latency_seconds.rel_uncertainty == 0.5
    assert link.nics_per_gpu is None
    assert link.ring_efficiency_by_gpus == {}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "bandwidth_bytes",
            "bandwith_bytes",
            r"unknown key 'bandwith_bytes_per_second'\. Perhaps you meant 'bandwidth_bytes_per_se",
        ),
        ("revision = 1", "", "revision is missing"),
        ("revision = 1", "revision = true", "revision: True must be a whole number"),
        ('"A cable"', "7", "name: 7 must be a text in quotes"),
        ('"ethernet"', '"etherent"', r"kind: 'etherent' must be one of .*meant 'ethernet'"),
        ("value = 1e9", 'value = "fast"', "bandwidth_bytes_per_second: value: 'fast' must be a nu"),
        ("value = 1e9", "value = nan", "bandwidth_bytes_per_second: value is nan"),
        ("value = 1e9", "value = inf", "bandwidth_bytes_per_second: value is inf"),
        ("value = 1e9", "value = -1.0", "value is -1.0: it must be above 0"),
        ("value = 1e9", "vlaue = 1e9", r"unknown key 'vlaue'\. Perhaps you meant 'value'"),
        ("value = 1e9", "value = 1e9, unit = 'GB'", "unknown key 'unit'"),
        ("value = 0.5", "value = 1.5", r"bandwidth_efficiency: value is 1.5: .* in \(0, 1\]"),
        (', kind = "measured"', "", "bandwidth_bytes_per_second: kind is missing"),
        ('"measured"', '"mesured"', r"kind: 'mesured' must be one of .*meant 'measured'"),
        (', source = "bench"', "", "source is missing"),
        ('"bench"', '"bensh"', r"source 'bensh' is not in sources\.toml\. Perhaps you .*'bench'"),
        (", rel_uncertainty = 0.5", "", "latency_seconds: rel_uncertainty is missing"),
        ("schema_version = 1", "schema_version = 9", "schema_version is 9; this release reads 1"),
        ("schema_version = 1", "", "schema_version is None"),
        ('id = "cable"', 'id = "rope"', "id is 'rope', but the file is named 'cable.toml'"),
        ("revision = 1", "revision", "cannot be read as TOML"),
        ('{ value = 1e9, kind = "measured", source = "bench" }', "1e9", "must be a table"),
    ],
)
def test_a_fault_names_its_place_and_remedy(folder: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(SpecError, match=rf"^cable\.toml: .*{message}"):
        read(folder, GOOD.replace(old, new, 1))


@given(share=st.floats().filter(lambda share: not 0 < share <= 1))
def test_an_efficiency_outside_its_range_is_refused(folder: Path, share: float) -> None:
    with pytest.raises(SpecError, match=r"must be in \(0, 1\]"):
        read(folder, GOOD.replace("value = 0.5", f"value = {share!r}"))


@given(share=st.floats(min_value=0, max_value=1, exclude_min=True))
def test_an_efficiency_inside_its_range_is_taken_as_it_is(folder: Path, share: float) -> None:
    text = GOOD.replace("value = 0.5", f"value = {share!r}")
    assert read(folder, text).bandwidth_efficiency.value == share


@pytest.mark.parametrize("count", ["two", "-2", "2.0"])
def test_a_count_of_gpus_is_a_whole_number(folder: Path, count: str) -> None:
    share = f'"{count}" = {{ value = 0.5, kind = "measured", source = "bench" }}'
    with pytest.raises(SpecError, match=f"'{count}' must be a whole number"):
        read(folder, f"{GOOD}[ring_efficiency_by_gpus]\n{share}\n")


def test_a_dtype_is_one_that_is_known(tmp_path: Path) -> None:
    shipped = load_catalogue().folders[-1]
    text = (shipped / "gpus" / "h100-sxm5-80gb.toml").read_text(encoding="utf-8")
    path = tmp_path / "gpus" / "h100-sxm5-80gb.toml"
    path.parent.mkdir()
    path.write_text(text.replace("second.bf16", "second.bf61"), encoding="utf-8")
    with pytest.raises(SpecError, match=r"peak_flop_per_second: bf61: unknown key .*'bf16'"):
        load_catalogue(tmp_path).gpu("h100-sxm5-80gb")


def test_a_fault_in_the_sources_names_the_source(tmp_path: Path) -> None:
    path = tmp_path / "sources.toml"
    path.write_text('schema_version = 1\n[bench]\ntitel = "A bench"\n', encoding="utf-8")
    with pytest.raises(SpecError, match=r"^sources\.toml: bench: unknown key 'titel'.*'title'"):
        read_sources(path)
