"""No operation is faster than its FLOPs or its bytes allow, or than anyone has measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroplan.compute.gemm import gemm_seconds
from zeroplan.compute.gpu import GpuPrice, gpu_price
from zeroplan.compute.price import work
from zeroplan.errors import SpecError
from zeroplan.hardware import load_catalogue
from zeroplan.spec.models import load_architecture
from zeroplan.units import TERA
from zeroplan.workload.autograd import backward
from zeroplan.workload.batch import Batch
from zeroplan.workload.changes import Checkpointing
from zeroplan.workload.liveness import forward, recompute
from zeroplan.workload.model import Unit, workload
from zeroplan.workload.tape import Matmul

EXTENT = st.integers(min_value=1, max_value=2**16)
GPUS = st.sampled_from(["a100-sxm4-80gb", "h100-sxm5-80gb", "rtx-4090", "v100-sxm2-32gb"])
HALF = 2
"""Bytes of an element. [B]"""


@given(EXTENT, EXTENT, EXTENT, GPUS)
def test_a_product_is_bound_by_its_flops_and_its_bytes(m: int, n: int, k: int, gpu: str) -> None:
    price = _price(gpu)
    product = Matmul(m=m, n=n, k=k)
    seconds = gemm_seconds(product, HALF, price)
    assert seconds >= product.flop / price.peak_flop_per_second
    assert seconds >= HALF * (m * n + m * k + n * k) / price.bytes_per_second


@given(EXTENT, EXTENT, EXTENT, st.sampled_from(["m", "n", "k"]))
def test_a_larger_product_takes_no_less_time(m: int, n: int, k: int, grown: str) -> None:
    price = _price("h100-sxm5-80gb")
    small = {"m": m, "n": n, "k": k}
    large = small | {grown: 2 * small[grown]}
    seconds = [gemm_seconds(Matmul(**shape), HALF, price) for shape in (small, large)]
    assert seconds[0] <= seconds[1]


@pytest.mark.published
@pytest.mark.parametrize(("gpu", "tflops"), [("a100-sxm4-80gb", 271.2), ("h100-sxm5-80gb", 794.5)])
def test_no_product_beats_the_best_that_was_found(gpu: str, tflops: float) -> None:
    """Maximum achievable matmul TFLOPS, Bekman, Machine Learning Engineering, accelerators."""
    product = Matmul(m=2**16, n=2**16, k=2**16)
    assert product.flop / gemm_seconds(product, HALF, _price(gpu)) < tflops * TERA


@pytest.mark.parametrize("checkpointing", ["selective", "full"])
def test_running_a_block_again_takes_no_longer_than_running_it(
    checkpointing: Checkpointing,
) -> None:
    """It stops early, and what was kept is not computed."""
    block, price = _block(4096), _price("h100-sxm5-80gb")
    again = work(recompute(block, checkpointing), price)
    assert 0 < again.seconds < work(forward(block, checkpointing), price).seconds


def test_backward_takes_about_twice_as_long_as_forward() -> None:
    """Two products for each; attention five for two, for it computes its scores again."""
    block, price = _block(8192), _price("h100-sxm5-80gb")
    ratio = work(backward(block), price).seconds / work(forward(block), price).seconds
    assert 1.8 < ratio < 2.8


def test_fused_kernels_move_less_and_are_fewer() -> None:
    block, price = _block(8192), _price("h100-sxm5-80gb")
    for steps in (forward(block, "none"), backward(block)):
        alone, fused = work(steps, price), work(steps, price, fuses=True)
        assert fused.seconds < alone.seconds
        assert fused.matmul_seconds == alone.matmul_seconds
        assert fused.forward_kernels <= alone.forward_kernels
        assert fused.backward_kernels <= alone.backward_kernels


def test_a_residual_sum_and_its_norm_read_the_stream_once() -> None:
    """Eager: the sum reads two and writes one, the norm reads and writes one; fused: two and two."""
    block, price = _block(8192), _price("h100-sxm5-80gb")
    steps = forward(block, "none")
    names = [step.operation.name for step in steps]
    first = names.index("residual")
    pair = [step for step in steps[first : first + 3] if step.operation.kernel == "memory"]
    assert [step.operation.name for step in pair] == ["residual", "norm"]
    stream = pair[0].operation.outputs[0].bytes
    alone, fused = (work(pair, price, fuses=fuses).seconds for fuses in (False, True))
    assert alone * price.bytes_per_second == pytest.approx(5 * stream, rel=0.01)
    assert fused * price.bytes_per_second == pytest.approx(4 * stream, rel=0.01)


@pytest.mark.published
@pytest.mark.parametrize(
    ("keys", "tflops"), [(512, 191), (1024, 260), (2048, 298), (4096, 319), (8192, 333)]
)
def test_attention_slows_down_with_fewer_keys(keys: int, tflops: int) -> None:
    """FlashAttention-2, causal, head dimension 128, H100 (arXiv 2407.08608, figure 5)."""
    whole = workload(load_architecture("llama-3.1-8b"), Batch(sequence_length=keys))
    steps = [s for s in forward(whole.units[1], "none") if s.operation.kernel == "attention"]
    gpu = load_catalogue(None).gpu("h100-sxm5-80gb")
    (step,) = steps
    seconds = work(steps, _price("h100-sxm5-80gb")).seconds * gpu.load_share.value
    flop = step.operation.flop * step.operation.visible_share
    assert flop / seconds == pytest.approx(tflops * TERA, rel=0.12)


def test_a_gpu_without_a_dtype_is_named() -> None:
    with pytest.raises(SpecError, match=r"'fp64' is not computed by h100-sxm5-80gb; use one of"):
        gpu_price(load_catalogue(None).gpu("h100-sxm5-80gb"), "fp64")


def _block(sequence_length: int) -> Unit:
    whole = workload(load_architecture("llama-3.1-8b"), Batch(sequence_length=sequence_length))
    return whole.units[1]


def _price(gpu: str) -> GpuPrice:
    return gpu_price(load_catalogue(None).gpu(gpu), "fp16")


def test_experts_that_no_token_reaches_take_no_time_to_speak_of() -> None:
    """Eight experts of which one has all routed rows take what that one takes, and launches."""
    batch = Batch(sequence_length=4096, experts="loop", expert_imbalance=100.0)
    unit = workload(load_architecture("mixtral-8x7b"), batch).units[1]
    price = _price("h100-sxm5-80gb")
    steps = [s for s in forward(unit, "none") if s.operation.name.startswith("experts ")]
    products = [s for s in steps if s.operation.matmuls]
    busy = [s for s in products if s.operation.flop]
    assert (len(products), len(busy)) == (16, 2)
    whole, one = work(products, price).seconds, work(busy, price).seconds
    assert one < whole < one + 16 * 20e-6
