"""Where each event lies on the clock: the same step as the walk that skips equal copies."""

import pytest

from zeroplan import estimate, load_spec
from zeroplan.estimation.choice import choose
from zeroplan.estimation.explain_case import Case, case_of
from zeroplan.estimation.resolve import resolve


def _case(**keys: object) -> Case:
    chosen = choose(resolve(load_spec(model="llama-3.1-8b", **keys)))
    return case_of(chosen.question, chosen.estimate, None)


@pytest.mark.parametrize(
    "keys",
    [
        {"strategy": "fsdp2", "gpus": 64},
        {"strategy": "zero3", "gpus": 16, "link": "ethernet-25g"},
        {"strategy": "zero1", "gpus": 8, "gradient_accumulation_steps": 5},
        {"strategy": "ddp", "gpus": 16, "backend": "gloo"},
        {"strategy": "fsdp2", "gpus": 8, "offload_optimizer": "cpu", "offload_parameters": "cpu"},
    ],
    ids=str,
)
def test_the_last_span_ends_when_the_step_does(keys: dict[str, object]) -> None:
    (found,) = estimate(load_spec(model="llama-3.1-8b", **keys)).estimates
    ends = [span.end_seconds for span in _case(**keys).spans()]
    assert max(ends) == pytest.approx(found.time.step_seconds, rel=1e-9)


def test_no_two_events_of_a_stream_run_at_once() -> None:
    by_stream: dict[str, float] = {}
    for span in _case(strategy="fsdp2", gpus=64).spans():
        assert span.start_seconds >= by_stream.get(span.stream, 0.0) - 1e-12
        assert span.end_seconds >= span.start_seconds
        by_stream[span.stream] = span.end_seconds
    assert len(by_stream) > 2


def test_a_span_knows_its_block() -> None:
    blocks = {span.block for span in _case(strategy="fsdp2", gpus=8).spans()}
    assert blocks == {None, *range(32)}
