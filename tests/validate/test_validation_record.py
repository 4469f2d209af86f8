"""What a validation says of its figures."""

import json
from dataclasses import replace

import pytest

from zeroplan.estimation.record import PhasePeaks
from zeroplan.spec.toml import load_spec
from zeroplan.validate.differences import differences
from zeroplan.validate.measurement import Machine, Measured, Outcome, RunRecord
from zeroplan.validate.record import Calls, Held, Observation
from zeroplan.validate.tables import tables, verdict
from zeroplan.validate.validation import Difference, Validation

STEP = Observation(
    peak_by_phase_bytes=PhasePeaks(forward=1000, backward=2000, optimizer=1500),
    moments=("here", "there", "everywhere"),
    peak_before_update_bytes=1400,
    held_bytes=Held(
        parameters=400, optimizer=800, inputs_and_buffers=8, after_forward=300, gradients=400
    ),
    step_seconds=(),
    collectives=(
        Calls(name="all_gather", phase="forward", count=4, input_bytes=50, output_bytes=400),
    ),
)


def _answer(prediction: Observation, truth: Observation, tolerance: float = 0.01) -> Validation:
    record = RunRecord(
        inputs=load_spec(model="llama-3.1-8b"),
        model_file=None,
        backend="fake",
        pretended=False,
        model_class="own",
        machine=Machine(
            gpu=None, gpu_memory_bytes=None, driver=None, cpu="one", cores=2, system="Linux"
        ),
        versions={"torch": "2.13.0"},
        date="2026-01-31",
        notes=(),
        outcome=Outcome(kind="ok"),
        measured=Measured(step=truth),
    )
    return Validation(
        record=record,
        prediction=prediction,
        predicted_verdict="fits",
        differences=differences(prediction, truth),
        tolerance=tolerance,
        notes=(),
    )


def _with_forward(peak: int) -> Observation:
    return replace(STEP, peak_by_phase_bytes=replace(STEP.peak_by_phase_bytes, forward=peak))


def test_equal_steps_are_inside_any_tolerance() -> None:
    answer = _answer(STEP, STEP, tolerance=0.0)
    assert answer.inside
    assert "equal to the byte" in next(verdict(answer))


@pytest.mark.parametrize(("peak", "inside"), [(1009, True), (991, True), (1011, False)])
def test_a_peak_is_held_to_the_tolerance(peak: int, inside: bool) -> None:
    assert _answer(_with_forward(peak), STEP).inside is inside


def test_the_difference_that_is_told_is_the_largest() -> None:
    answer = _answer(_with_forward(1100), STEP)
    assert answer.largest.name == "peak in forward"
    assert answer.largest.error_fraction == pytest.approx(0.1)
    assert "peak in forward, +10.000 %; outside" in next(verdict(answer))


def test_a_collective_that_never_came_is_outside() -> None:
    answer = _answer(STEP, replace(STEP, collectives=()))
    assert not answer.inside
    assert answer.largest.error_fraction is None
    assert "not there" in next(verdict(answer))


def test_a_collective_that_was_not_predicted_is_outside() -> None:
    assert not _answer(replace(STEP, collectives=()), STEP).inside


def test_what_makes_a_peak_up_is_shown_and_not_judged() -> None:
    held = replace(STEP.held_bytes, inputs_and_buffers=16)
    answer = _answer(replace(STEP, held_bytes=held), STEP)
    assert answer.inside
    assert any(each.error_fraction == 1.0 for each in answer.differences)


def test_the_document_holds_both_sides_and_every_difference() -> None:
    answer = _answer(_with_forward(1100), STEP)
    document = json.loads(answer.to_json())
    assert document["prediction"]["peak_by_phase_bytes"]["forward"] == 1100
    assert document["truth"]["peak_by_phase_bytes"]["forward"] == 1000
    assert document["versions"] == {"torch": "2.13.0"}
    assert document["inside_tolerance"] is False
    assert len(document["differences"]) == len(answer.differences)


def test_the_tables_list_every_difference_once() -> None:
    answer = _answer(STEP, STEP)
    rows = [row for table in tables(answer) for row in table.rows]
    assert [row[0] for row in rows] == [each.name for each in answer.differences]


def test_a_few_bytes_are_not_rounded_to_equal() -> None:
    near = Difference(name="x", predicted=10**9, measured=10**9 + 1, kind="peak")
    answer = replace(_answer(STEP, STEP), differences=(near,))
    (table,) = tables(answer)
    assert table.rows[0][-1] == "< 0.001"
