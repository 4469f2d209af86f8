"""What a form of the loss keeps and how high it reaches, beside what PyTorch does."""

from collections.abc import Iterable
from typing import Any

import pytest

from zeroplan.spec.models import architecture_of
from zeroplan.workload.autograd import backward
from zeroplan.workload.batch import Batch
from zeroplan.workload.changes import Step
from zeroplan.workload.liveness import forward
from zeroplan.workload.model import Unit, workload

SEQUENCES, LENGTH, WORDS = 2, 512, 4000
KEPT_BYTES, FORWARD_BYTES, BACKWARD_BYTES = 8_200, 8_208, 8_196_100
"""`cross_entropy(logits.float(), labels)` compiled by torch 2.13 for CPU, bf16 logits not counted:
allocations of its two calls by torch.profiler. Kept: two fp32 numbers a row and two scalars."""
SCALARS_BYTES = 2 * 512


def tail() -> Unit:
    """The last norm and the head of a small Llama, with a compiled loss."""
    config = {
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": 64,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "vocab_size": WORDS,
    }
    batch = Batch(sequences=SEQUENCES, sequence_length=LENGTH, loss="compiled")
    return workload(architecture_of(config, "small", "small"), batch).units[-1]


def reach(steps: Iterable[Step]) -> tuple[int, int]:
    """Net and highest bytes of the steps that are the loss's own."""
    live = high = 0
    for step in steps:
        for change in step.changes:
            if step.operation.name == "compiled cross-entropy":
                live += int(change.bytes)
                high = max(high, live)
    return live, high


class TestACompiledLoss:
    def test_keeps_two_numbers_a_row_beside_the_logits(self) -> None:
        kept, high = reach(forward(tail()))
        assert kept == pytest.approx(KEPT_BYTES, abs=SCALARS_BYTES)
        assert high == pytest.approx(FORWARD_BYTES, abs=SCALARS_BYTES)

    def test_has_one_gradient_of_the_logits_in_backward(self) -> None:
        _, high = reach(backward(tail()))
        assert high == pytest.approx(BACKWARD_BYTES, abs=SCALARS_BYTES)

    @pytest.mark.torch
    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own modules
    def test_of_pytorch_allocates_what_is_written_above(self) -> None:
        import torch  # noqa: PLC0415  # the other tests do without
        from torch.profiler import profile  # noqa: PLC0415  # the same

        def loss(logits: Any, labels: Any) -> Any:
            wide = logits.flatten(0, 1).float()
            return torch.nn.functional.cross_entropy(wide, labels.flatten())

        def allocations(call: Any) -> tuple[Any, int, int]:
            with profile(profile_memory=True) as record:
                result = call()
            live = high = 0
            events = record.profiler.kineto_results.events()
            for event in sorted(events, key=lambda each: each.start_ns()):
                if event.name() == "[memory]":
                    live += event.nbytes()
                    high = max(high, live)
            return result, live, high

        compiled = torch.compile(loss)
        shape = (SEQUENCES, LENGTH, WORDS)
        logits = torch.zeros(shape, dtype=torch.bfloat16, requires_grad=True)
        labels = torch.zeros(shape[:2], dtype=torch.int64)
        compiled(logits, labels).backward()
        logits.grad = None
        value, kept, high = allocations(lambda: compiled(logits, labels))
        assert (kept, high) == (KEPT_BYTES, FORWARD_BYTES)
        assert allocations(value.backward)[2] == BACKWARD_BYTES
