"""`zeroplan hardware diff`: what two profiles differ in, value by value."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from zeroplan.cli.hardware import app
from zeroplan.errors import SpecError, UsageError
from zeroplan.hardware import Choice, Quantity, load_catalogue
from zeroplan.hardware.diff import differences
from zeroplan.hardware.profile import entries
from zeroplan.records import replace

CATALOGUE = load_catalogue()
PROFILES = Path(__file__).parents[2] / "hardware_profiles"
RUNNER = CliRunner()


def test_two_gpus_differ_in_what_their_files_differ_in() -> None:
    h100, h200 = CATALOGUE.gpu("h100-sxm5-80gb"), CATALOGUE.gpu("h200-sxm-141gb")
    found = {each.key: each for each in differences(h100, h200)}
    memory = found["hbm_bytes_per_second"]
    assert memory.change == pytest.approx(4.8 / 3.35 - 1)
    assert isinstance(memory.after, Quantity)
    assert (memory.after.kind, memory.after.source) == ("datasheet", "ml-engineering-accelerators")
    one, other = dict(entries(h100)), dict(entries(h200))
    same = [key for key in one if key not in found and key in other]
    assert "power_watts" in same
    assert [key for key in same if one[key].value != other[key].value] == []


def test_a_key_that_one_lacks_is_told() -> None:
    (found,) = differences(
        CATALOGUE.link("nvlink3"), replace(CATALOGUE.link("nvlink3"), switch_efficiency=_share())
    )
    assert (found.key, found.before, found.change) == ("switch_efficiency", None, None)


def test_a_choice_that_changed_and_words_are_told() -> None:
    found = {x.key: x for x in differences(CATALOGUE.node("dgx-a100"), CATALOGUE.node("dgx-h100"))}
    assert isinstance(found["intra_link"].after, Choice)
    assert found["intra_link"].after.value == "nvlink4"
    assert found["topology"].before == "6 NVSwitches"


def test_other_words_about_the_same_number_are_no_difference() -> None:
    link = CATALOGUE.link("nvlink4")
    reworded = replace(link.latency_seconds, note="seen at night")
    assert differences(link, replace(link, latency_seconds=reworded)) == ()
    surer = replace(link.latency_seconds, rel_uncertainty=0.01)
    assert [x.key for x in differences(link, replace(link, latency_seconds=surer))]


def _share() -> Quantity:
    return Quantity(value=0.5, unit="1", kind="measured", source="nccl-sweeps")


@pytest.mark.parametrize(
    ("first", "second"),
    [("h100-sxm5-80gb", "rtx-4090"), ("nvlink3", "ib-ndr400"), ("dgx-h100", "p5-48xlarge")],
)
def test_a_person_reads_them_at_80_columns(
    first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = RUNNER.invoke(app, ["diff", first, second]).stdout
    assert [x for x in shown.splitlines() if len(x) > 80 and "://" not in x] == []
    rows = [line.split() for line in shown.splitlines()]
    assert ["quantity", "value", "+/-", "change", "kind", "source"] in rows


def test_a_program_reads_them_in_si_units() -> None:
    shown = json.loads(RUNNER.invoke(app, ["diff", "nvlink3", "nvlink4", "--json"]).stdout)
    assert (shown["record"], shown["before"], shown["after"]) == ("link", "nvlink3", "nvlink4")
    rate = next(x for x in shown["differences"] if x["key"] == "bandwidth_bytes_per_second")
    assert rate["before"]["value"] == 300e9
    assert rate["change"] == pytest.approx(0.5)
    assert rate["after"]["source"] in shown["sources"]


def test_a_file_stands_for_its_profile(tmp_path: Path) -> None:
    text = (PROFILES / "links" / "nvlink4.toml").read_text(encoding="utf-8")
    own = tmp_path / "links" / "nvlink4.toml"
    own.parent.mkdir()
    own.write_text(text.replace("value = 0.8125", "value = 0.5"), encoding="utf-8")
    shown = RUNNER.invoke(app, ["diff", "nvlink4", str(own)]).stdout
    assert "bandwidth_efficiency" in shown
    assert "-38.5%" in shown
    assert "Nothing differs." in RUNNER.invoke(app, ["diff", "nvlink4", "nvlink4"]).stdout


@pytest.mark.parametrize(
    ("words", "error", "why"),
    [
        (["nvlink4", "dgx-h100"], UsageError, "a Link and a Node"),
        (["nvlink4", "nvlink"], SpecError, "Perhaps you meant 'nvlink2'"),
        (["nvlink4", "no.toml"], SpecError, "no.toml: cannot be read"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    words: list[str], error: type[Exception], why: str
) -> None:
    found = RUNNER.invoke(app, ["diff", *words]).exception
    assert isinstance(found, error)
    assert why in str(found)
