"""The record is the contract's JSON, in its order, and shows itself in a notebook."""

import json
from dataclasses import replace
from typing import Any

import pytest

from zeroplan.estimation import estimate
from zeroplan.estimation.record import Estimate, PeakBreakdown
from zeroplan.rows import plain

KEYS = {
    "schema_version": None,
    "zeroplan_version": None,
    "inputs": {
        "model": None,
        "training": None,
        "tuning": None,
        "sharding": None,
        "cluster": None,
    },
    "total_parameters": None,
    "trainable_parameters": None,
    "assumptions": {"name": None, "value": None, "unit": None, "kind": None, "source": None},
    "notes": None,
    "estimates": {
        "strategy": None,
        "verdict": None,
        "memory": {
            "parameters_bytes": None,
            "gradients_bytes": None,
            "optimizer_bytes": None,
            "peak_tensor_bytes": None,
            "peak_allocated_bytes": None,
            "peak_moment": None,
            "peak_breakdown_bytes": dict.fromkeys(
                (
                    "parameters",
                    "unsharded_parameters",
                    "gradients",
                    "unsharded_gradients",
                    "optimizer",
                    "activations",
                    "loss",
                    "all_gather_buffers",
                    "reduce_scatter_buffers",
                    "temporaries",
                    "workspaces",
                    "other",
                )
            ),
            "peak_by_phase_bytes": {"forward": None, "backward": None, "optimizer": None},
            "reserved_bytes": None,
            "device_bytes": None,
            "usable_bytes": None,
            "headroom_bytes": None,
            "host_bytes": None,
            "host_load_bytes": None,
            "host_save_bytes": None,
            "nvme_bytes": None,
            "checkpoint_bytes": None,
            "host_memory_bytes": None,
            "host_verdict": None,
        },
        "communication": {
            "collectives": dict.fromkeys(
                (
                    "name",
                    "phase",
                    "group",
                    "count",
                    "input_bytes",
                    "output_bytes",
                    "wire_bytes",
                    "seconds",
                )
            ),
            "wire_bytes": None,
            "inter_node_wire_bytes": None,
        },
        "time": dict.fromkeys(
            (
                "step_seconds",
                "compute_seconds",
                "optimizer_seconds",
                "communication_seconds",
                "exposed_communication_seconds",
                "offload_seconds",
                "exposed_offload_seconds",
                "low_seconds",
                "high_seconds",
                "bound_by",
                "tokens_per_second_per_gpu",
                "model_flops_utilization",
                "hardware_flops_utilization",
            )
        ),
        "budget": None,
    },
}
"""Section 3 of the contract; a list stands for its items."""


def _keys(value: Any, form: Any) -> None:
    if not isinstance(form, dict):
        return
    for item in value if isinstance(value, list) else [value]:
        assert list(item) == list(form)
        for key, inner in form.items():
            _keys(item[key], inner)


def test_json_has_the_keys_of_the_contract_in_its_order(answer: Estimate) -> None:
    _keys(json.loads(answer.to_json()), KEYS)


def test_json_is_the_dictionary(answer: Estimate) -> None:
    assert json.loads(answer.to_json()) == answer.to_dict()


def test_a_figure_that_is_not_a_number_never_reaches_the_json(answer: Estimate) -> None:
    first = answer.estimates[0]
    broken = replace(first, time=replace(first.time, step_seconds=float("nan")))
    with pytest.raises(ValueError, match="not JSON compliant"):
        replace(answer, estimates=(broken,)).to_json()


def test_what_is_not_known_is_null(answer: Estimate) -> None:
    first = json.loads(answer.to_json())["estimates"][0]
    assert first["time"]["hardware_flops_utilization"] is None


def test_the_example_adds_up(answer: Estimate) -> None:
    """So that tests that use it do not rest on an impossible answer."""
    for each in answer.estimates:
        memory = each.memory
        parts: PeakBreakdown = memory.peak_breakdown_bytes
        assert sum(plain(parts).values()) == memory.peak_allocated_bytes
        assert memory.peak_allocated_bytes - parts.workspaces == memory.peak_tensor_bytes
        assert (memory.usable_bytes or 0) - (memory.device_bytes or 0) == memory.headroom_bytes


def test_the_fastest_is_one_that_fits(answer: Estimate, nothing_fits: Estimate) -> None:
    assert answer.fastest is not None
    assert answer.fastest.strategy == "fsdp2"
    assert nothing_fits.fastest is None


def test_a_tight_strategy_counts_as_fitting(answer: Estimate, nothing_fits: Estimate) -> None:
    assert [each.fits for each in answer.estimates] == [False, True, True]
    assert answer.fits
    assert not nothing_fits.fits


def test_repr_is_one_line_with_every_verdict(answer: Estimate) -> None:
    assert repr(answer) == (
        "Estimate(llama-3.1-8b: ddp does not fit, 130 GiB; zero3 tight, 77.0 GiB; "
        "fsdp2 fits, 40.0 GiB)"
    )


def test_notebooks_show_both_tables_with_headed_columns(answer: Estimate) -> None:
    page = answer._repr_html_()
    assert page.count("<table>") == 2
    assert '<th scope="col" class="words">verdict</th>' in page
    assert '<td class="words">does not fit</td>' in page
    assert "color" not in page


def test_a_frame_has_a_row_per_strategy_in_si_units(answer: Estimate) -> None:
    frame = answer.to_frame()
    assert list(frame.index) == ["ddp", "zero3", "fsdp2"]
    assert frame.loc["fsdp2", "memory.peak_allocated_bytes"] == 40 * 2**30
    assert frame.loc["fsdp2", "memory.peak_breakdown_bytes.loss"] == 2**30
    assert frame.loc["fsdp2", "time.step_seconds"] == 1.0


def test_seconds_of_a_collective_are_summed_over_phases(answer: Estimate) -> None:
    communication = answer.estimates[0].communication
    assert communication.seconds("all_gather") == 0.375
    assert communication.seconds("all_reduce") == 0


def test_seconds_are_unknown_where_one_call_is(answer: Estimate) -> None:
    communication = answer.estimates[0].communication
    first, second = communication.collectives
    unknown = replace(communication, collectives=(first, replace(second, seconds=None)))
    assert unknown.seconds("all_gather") is None


def test_what_backward_computes_again_counts_as_hardware_flops() -> None:
    """Selective checkpointing computes some matmuls again, full checkpointing all of a block."""
    shares = []
    for checkpointing in ("none", "selective", "full"):
        answer = estimate(
            model="llama-3.1-8b", strategy="fsdp2", activation_checkpointing=checkpointing
        )
        time = answer.estimates[0].time
        shares.append((time.hardware_flops_utilization or 0) / (time.model_flops_utilization or 1))
    assert shares[0] == 1
    assert 1.05 < shares[1] < 1.2 < shares[2] < 4 / 3


def test_a_strategy_that_is_left_out_on_one_node_is_told_in_the_notes() -> None:
    one, two = (estimate(model="llama-3.2-1b", gpus=gpus) for gpus in (8, 16))
    assert "hsdp" not in [each.strategy for each in one.estimates]
    assert any(note.startswith("hsdp left out: on one node") for note in one.to_dict()["notes"])
    assert not any("left out" in note for note in two.notes)
    assert not any("hsdp" in note for note in estimate(model="8b", gpus=8, strategy="ddp").notes)
