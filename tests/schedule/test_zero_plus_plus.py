"""ZeRO++: the groups of its scales and of its calls, and what they send between nodes."""

from collections.abc import Callable
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroplan.errors import SpecError
from zeroplan.estimation import estimate
from zeroplan.estimation.record import Collective
from zeroplan.schedule import script
from zeroplan.schedule.plan import Plan
from zeroplan.schedule.zero3_quantized_weights import scales_of

LLAMA_3_8B = 8_030_261_248


def search(elements: int) -> int:
    """Look for a number of groups as `CUDAQuantizer.quantize` does (0.19.8)."""
    groups = ceil(elements / 8000)
    while groups < elements and elements % (8 * groups):
        groups += 1
    while elements % (16 * groups) == 0 and elements / groups > 8000:
        groups *= 2
    return groups


@given(st.integers(1, 4000).map(lambda words: 8 * words))
def test_the_scales_are_as_many_as_deepspeed_finds(elements: int) -> None:
    assert scales_of(elements) == search(elements)


@pytest.mark.parametrize(("elements", "scales"), [(8000, 1), (8008, 7), (2**20, 256), (8, 1)])
def test_a_group_has_8000_elements_at_most(elements: int, scales: int) -> None:
    """8008 = 8 x 7 x 11 x 13: its 1001 words are cut into 7 by 143, as 2 to 6 divide them not."""
    assert scales_of(elements) == scales


@pytest.mark.parametrize("elements", [4, 12, 8001])
def test_what_deepspeed_cannot_quantise_is_refused(elements: int) -> None:
    with pytest.raises(SpecError, match="quantises multiples of 8 elements"):
        scales_of(elements)


def test_the_refusal_reaches_the_user(deepspeed_plan: Callable[..., Plan]) -> None:
    settings = {"zero_quantized_weights": True, "stage3_param_persistence_threshold": 0}
    with pytest.raises(SpecError, match="larger stage3_param_persistence_threshold"):
        script(deepspeed_plan(strategy="zero3", ranks=3, deepspeed=settings))


def calls(**keys: Any) -> dict[tuple[str, str, str], Collective]:
    (found,) = estimate(model="llama-3.1-8b", strategy="zero3", link="ib", **keys).estimates
    return {(each.phase, each.name, each.group): each for each in found.communication.collectives}


def test_backward_gathers_inside_the_node() -> None:
    """The same bytes come out; each of 8 ranks brings eight times what each of 64 does."""
    keys = {"gpus": 64, "stage3_max_reuse_distance": 0}
    plain, secondary = calls(**keys), calls(**keys, zero_hpz_partition_size=8)
    far = plain["backward", "all_gather", "shard"]
    near = secondary["backward", "all_gather", "secondary"]
    assert near.output_bytes == far.output_bytes
    assert near.input_bytes == 8 * far.input_bytes
    assert near.seconds is not None
    assert far.seconds is not None
    assert near.seconds < far.seconds
    assert ("backward", "all_gather", "shard") not in secondary


def test_quantised_gradients_cross_the_nodes_as_int4() -> None:
    """Half a byte an element in the node, an eighth of that between nodes; one gradient each.

    Norms stay whole: 65 of 4096 elements in two bytes.
    """
    found = calls(gpus=64, zero_quantized_gradients=True)
    matrices, norms = LLAMA_3_8B - 65 * 4096, 65
    assert found["backward", "reduce_scatter", "world"].count == norms
    tensors = 2 + 32 * 7
    for group, payload in (("intra", matrices // 2), ("inter", matrices // 16)):
        sent = found["backward", "all_to_all", group]
        assert sent.count == 2 * tensors
        assert payload < sent.input_bytes < 1.01 * payload
        assert sent.wire_bytes == pytest.approx(sent.input_bytes * 7 / 8)
    assert calls(gpus=8, zero_quantized_gradients=True) == calls(gpus=8)


def test_what_an_all_to_all_sends_to_other_nodes() -> None:
    """64 GPUs: an eighth of the int4 gradients, seven parts of eight to the other nodes."""
    keys: dict[str, Any] = {
        "model": "llama-3.1-8b",
        "strategy": "zero3",
        "gpus": 64,
        "link": "ib",
    }
    (plain,) = estimate(**keys).estimates
    (quantised,) = estimate(**keys, zero_quantized_gradients=True).estimates
    inter = next(each for each in quantised.communication.collectives if each.group == "inter")
    saved = (
        plain.communication.inter_node_wire_bytes - quantised.communication.inter_node_wire_bytes
    )
    gone = next(each for each in plain.communication.collectives if each.name == "reduce_scatter")
    left = next(
        each for each in quantised.communication.collectives if each.name == "reduce_scatter"
    )
    assert saved == pytest.approx(
        (gone.wire_bytes - left.wire_bytes) / 8 - inter.wire_bytes, rel=1e-6
    )
