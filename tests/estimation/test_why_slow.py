"""Why a step is slow: its parts are the step, and what is promised is what an estimate says."""

import json
from dataclasses import replace
from typing import Any

import pytest

from zeroplan.estimation import estimate
from zeroplan.estimation.answer import answer
from zeroplan.estimation.break_even import HIDDEN, is_hidden
from zeroplan.estimation.resolve import resolve
from zeroplan.estimation.why_slow import WhySlow, why_slow
from zeroplan.report.advice import slow_text
from zeroplan.report.terminal import Page
from zeroplan.spec.toml import load_spec

ETHERNET: dict[str, Any] = {
    "model": "1b",
    "gpus": 16,
    "link": "ethernet-100g",
    "strategy": "fsdp2",
    "sequence_length": 8192,
}


@pytest.fixture(scope="module")
def told() -> WhySlow:
    return why_slow(**ETHERNET)


@pytest.mark.parametrize(
    "keys",
    [
        {"strategy": "fsdp2"},
        {"strategy": "zero3", "offload_optimizer": "cpu"},
        {"strategy": "ddp", "link": "ethernet-10g"},
        {"strategy": "none", "gpus": 1},
    ],
)
def test_the_parts_are_the_step(keys: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"model": "1b", "gpus": 16, **keys}
    found = why_slow(**asked)
    step = found.estimate.time.step_seconds
    assert sum(part.seconds for part in found.parts) == pytest.approx(step, rel=1e-9)
    assert found.cause == max(found.parts, key=lambda part: part.seconds).cause


def test_what_leaves_a_node_goes_through_its_nics(told: WhySlow) -> None:
    """8 GPUs of a node share eight 100 Gbit/s NICs or fewer; every byte goes through one."""
    assert told.nics is not None
    node = 8 * told.estimate.communication.inter_node_wire_bytes
    assert told.nics.bytes_per_nic * told.nics.nics == pytest.approx(node)
    assert told.nics.line_bytes_per_second == 12.5e9
    assert told.nics.line_seconds == told.nics.bytes_per_nic / 12.5e9
    assert why_slow(model="1b", gpus=8, strategy="fsdp2").nics is None


def test_a_collective_costs_no_more_than_it_takes_nor_than_is_waited_for(told: WhySlow) -> None:
    waits = told.estimate.time.exposed_communication_seconds or 0.0
    assert {each.name for each in told.collectives} == {"all_gather", "reduce_scatter"}
    for each in told.collectives:
        assert 0 < each.exposed_seconds < each.seconds * 1.4
    assert sum(each.exposed_seconds for each in told.collectives) <= 1.4 * waits
    costs = [each.exposed_seconds for each in told.collectives]
    assert costs == sorted(costs, reverse=True)


def test_the_tokens_that_hide_it_do_and_one_sequence_less_does_not(told: WhySlow) -> None:
    enough = told.tokens
    assert enough is not None
    assert enough.needed is not None
    assert enough.now == 8192
    sequences = int(enough.needed // 8192)
    assert sequences > 1
    there, below = (
        estimate(**ETHERNET, micro_batch_size=many).estimates[0]
        for many in (sequences, sequences - 1)
    )
    assert is_hidden(there)
    assert not is_hidden(below)
    assert enough.verdict == there.verdict


def test_the_bandwidth_that_hides_it_does_and_a_little_less_does_not(told: WhySlow) -> None:
    enough = told.bandwidth
    assert enough is not None
    assert enough.needed is not None
    question = resolve(load_spec(**ETHERNET))
    wires = question.wires
    assert enough.now == wires.node_bytes_per_second

    def hides(bandwidth: float) -> bool:
        factor = bandwidth / enough.now
        line = wires.inter.bandwidth_bytes_per_second
        host = wires.inter.host_bytes_per_second
        inter = replace(
            wires.inter,
            bandwidth_bytes_per_second=replace(line, value=line.value * factor),
            host_bytes_per_second=host and replace(host, value=host.value * factor),
        )
        faster = replace(wires, inter=inter, node_bytes_per_second=bandwidth)
        return is_hidden(answer(replace(question, wires=faster)).estimates[0])

    assert hides(enough.needed * 1.001)
    assert not hides(enough.needed * 0.95)


def test_what_is_hidden_already_says_how_little_would_do() -> None:
    found = why_slow(**ETHERNET | {"link": "ib", "micro_batch_size": 8})
    assert is_hidden(found.estimate)
    for enough in (found.tokens, found.bandwidth):
        assert enough is not None
        assert enough.needed is not None
        assert enough.needed <= enough.now


def test_one_gpu_sends_nothing() -> None:
    found = why_slow(model="1b", gpus=1, strategy="none")
    assert found.tokens is found.bandwidth is None
    assert found.collectives == ()
    assert "It sends nothing." in slow_text(found, Page(width=80))


def test_a_change_is_what_an_estimate_with_its_keys_says(told: WhySlow) -> None:
    changes = {each.change: each for each in told.changes}
    hsdp = estimate(**ETHERNET | {"strategy": "hsdp"}).estimates[0]
    found = changes["strategy hsdp"]
    assert found.step_seconds == hsdp.time.step_seconds
    assert found.peak_allocated_bytes == hsdp.memory.peak_allocated_bytes
    assert found.tokens_per_second_per_gpu == hsdp.time.tokens_per_second_per_gpu
    assert "less between nodes" in found.why
    rates = [each.tokens_per_second_per_gpu for each in told.changes if each.verdict == "fits"]
    assert rates == sorted(rates, reverse=True)
    assert min(rates) > (told.estimate.time.tokens_per_second_per_gpu or 0.0)


def test_zero_3_is_told_of_a_second_copy_in_the_node() -> None:
    found = why_slow(**ETHERNET | {"strategy": "zero3"})
    (hpz,) = [each for each in found.changes if each.change == "zero_hpz_partition_size 8"]
    assert hpz.saved_bytes < 0
    assert hpz.extra_exposed_seconds < 0


def test_fewer_micro_steps_keep_the_batch() -> None:
    found = why_slow(**ETHERNET | {"gradient_accumulation_steps": 4})
    changes = [each.change for each in found.changes]
    assert "micro_batch_size 4, gradient_accumulation_steps 1" in changes
    assert "synchronize_gradients last" in changes


def test_the_json_is_one_document_with_everything(told: WhySlow) -> None:
    document = json.loads(told.to_json())
    assert document["schema_version"] == 1
    assert document["inputs"]["sharding"]["strategy"] == "fsdp2"
    assert document["cause"] == "communication"
    assert document["tokens"]["needed"] == told.tokens.needed if told.tokens else False
    assert len(document["changes"]) == len(told.changes)


def test_a_person_reads_the_cause_and_every_table_in_80_columns(told: WhySlow) -> None:
    page = slow_text(told, Page(width=80))
    assert max(map(len, page.splitlines())) <= 80
    assert f"hidden below {100 * HIDDEN:.0f} %" in " ".join(page.split())
    for title in ("Where the step goes", "Through each NIC", "What hides", "What would be faster"):
        assert title in page
    assert "Where the step goes" in told._repr_html_()
