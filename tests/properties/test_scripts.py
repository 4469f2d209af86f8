"""Laws of scripts, whatever the strategy and its switches.

A script that tells equal blocks once gives what the same script written out gives; the oracles know
no repetition: they copy what repeats and add one change after another. And a steady step ends as it
began.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zeroplan.compute.gpu import gpu_price
from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import Question, resolve
from zeroplan.memory.walk import peaks
from zeroplan.schedule import script
from zeroplan.schedule.events import Event, Item, Script
from zeroplan.spec.models import architecture_of
from zeroplan.spec.toml import load_spec
from zeroplan.timing.host import HostPrice, host_price
from zeroplan.timing.walk import walk

RELATIVE = 1e-10
GPUS = 6
DRIFTING = {
    "strategy": "fsdp1",
    "blocks": 5,
    "gradient_accumulation_steps": 1,
    "activation_checkpointing": "full",
    "synchronize_gradients": "every",
    "link": "ib-hdr200",
    "sequence_length": 4096,
}
"""Every block waits longer for the host than the one before, at an even pace."""


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    """Keys of a run of a small model on two nodes of three GPUs, with any switches."""
    strategy = draw(
        st.sampled_from(
            ["ddp", "zero0", "zero1", "zero2", "zero3", "fsdp1", "fsdp2", "hsdp", "torch-zero1"]
        )
    )
    keys: dict[str, Any] = {
        "strategy": strategy,
        "blocks": draw(st.integers(min_value=1, max_value=40)),
        "gradient_accumulation_steps": draw(st.integers(min_value=1, max_value=9)),
        "activation_checkpointing": draw(
            st.sampled_from(["none", "full", "selective", "every-2", "every-3", "every-5"])
        ),
        "synchronize_gradients": draw(st.sampled_from(["every", "last"])),
        "link": draw(st.sampled_from(["ib-hdr200", "ethernet-1g"])),
        "sequence_length": draw(st.sampled_from([16, 4096])),
    }
    if strategy in ("ddp", "torch-zero1"):
        keys["bucket_bytes"] = draw(st.integers(min_value=1, max_value=2**21))
        keys["gradient_as_bucket_view"] = draw(st.booleans())
    if strategy in ("fsdp2", "hsdp"):
        keys["root_wrap"] = draw(st.sampled_from(["together", "separate"]))
        keys["reshard_after_backward"] = draw(st.booleans())
        keys["all_reduce"] = draw(st.sampled_from(["every", "last"]))
        keys["reshard_after_forward"] = draw(st.sampled_from([True, False, 3]))
    return keys


@settings(max_examples=40)
@given(questions())
def test_the_peaks_are_those_of_every_block_written_out(keys: dict[str, Any]) -> None:
    step = _script(_question(keys))
    live: Counter[str] = Counter()
    for change in step.resident:
        live[change.category] += change.bytes
    highest: dict[str, tuple[int, Counter[str]]] = {}
    for event, _ in _written_out(step.items):
        _note(highest, event.phase, live)
        for change in event.changes:
            live[change.category] += change.bytes
            _note(highest, event.phase, live)
    found = peaks(step)
    assert {phase: peak.bytes for phase, peak in found.items()} == {
        phase: size for phase, (size, _) in highest.items()
    }
    for phase, peak in found.items():
        assert {c: b for c, b in peak.breakdown.items() if b} == +highest[phase][1]


@settings(max_examples=40)
@given(questions())
def test_the_moment_of_the_peak_is_named_after_its_block(keys: dict[str, Any]) -> None:
    step = _script(_question(keys))
    total = sum(change.bytes for change in step.resident)
    reached: dict[str, list[tuple[int, int | None]]] = {}
    for event, block in _written_out(step.items):
        for change in event.changes:
            total += change.bytes
            reached.setdefault(event.phase, []).append((total, block))
    for phase, peak in peaks(step).items():
        if peak.event is not None:
            assert (peak.bytes, peak.block) in reached[phase]


@settings(max_examples=60)
@given(questions(), st.sampled_from([0.0, 0.1, 1.0, 10.0]))
@example(DRIFTING, 0.1)
def test_the_clocks_are_those_of_every_block_written_out(
    keys: dict[str, Any], slowness: float
) -> None:
    """Whether the host is far ahead, in step or far behind."""
    question = _question(keys)
    step = _script(question)
    price = gpu_price(question.gpu, "bf16")
    host = host_price(question.strategies[0], compiled=False)
    host = HostPrice(**{name: slowness * seconds for name, seconds in vars(host).items()})
    plain = Script(
        resident=step.resident, items=tuple(event for event, _ in _written_out(step.items))
    )
    found = walk(step, price, question.wires, host)
    expected = walk(plain, price, question.wires, host)
    near = RELATIVE * expected.step_seconds
    for name, seconds in vars(expected).items():
        assert getattr(found, name) == pytest.approx(seconds, rel=RELATIVE, abs=near), name


@settings(max_examples=40)
@given(questions())
def test_calls_are_counted_as_often_as_they_happen(keys: dict[str, Any]) -> None:
    step = _script(_question(keys))
    told: Counter[int] = Counter()
    for event, times in step.calls():
        told[id(event)] += times
    assert told == Counter(id(event) for event, _ in _written_out(step.items))


@settings(max_examples=40)
@given(questions())
def test_a_step_ends_with_what_it_began_with(keys: dict[str, Any]) -> None:
    net: Counter[str] = Counter()
    for event, times in _script(_question(keys)).calls():
        for change in event.changes:
            net[change.category] += times * change.bytes
    assert not any(net.values())


@settings(max_examples=40)
@given(questions())
def test_nothing_is_freed_that_does_not_live(keys: dict[str, Any]) -> None:
    step = _script(_question(keys))
    live: Counter[str] = Counter()
    for change in step.resident:
        live[change.category] += change.bytes
    for event, _ in _written_out(step.items):
        for change in event.changes:
            live[change.category] += change.bytes
            assert live[change.category] >= 0, event


def _written_out(items: tuple[Item, ...], shift: int = 0) -> Iterator[tuple[Event, int | None]]:
    """Copy what repeats; yield each event with the number of its block."""
    for item in items:
        if isinstance(item, Event):
            yield item, None if item.block is None else item.block + shift
        else:
            for copy in range(item.times):
                yield from _written_out(item.items, shift + copy * item.stride)


def _note(highest: dict[str, tuple[int, Counter[str]]], phase: str, live: Counter[str]) -> None:
    total = sum(live.values())
    if phase not in highest or total > highest[phase][0]:
        highest[phase] = total, live.copy()


def _script(question: Question) -> Script:
    return script(plan_for(question, question.strategies[0], {}))


def _question(keys: dict[str, Any]) -> Question:
    rest = dict(keys)
    config = {
        "model_type": "llama",
        "num_hidden_layers": rest.pop("blocks"),
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 176,
        "vocab_size": 1001,
    }
    question = resolve(load_spec(model="smollm-135m", gpus=GPUS, gpus_per_node=3, **rest))
    return replace(question, architecture=architecture_of(config, "test", "toy"))
