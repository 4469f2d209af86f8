"""Host memory of a node: loading, saving, and whether it suffices."""

from typing import Any

import pytest

from zeroplan.estimation import estimate
from zeroplan.estimation.record import Memory
from zeroplan.memory.host import PROCESS_BYTES
from zeroplan.units import GIB

ASKED: dict[str, Any] = {"model": "llama-3.1-8b", "gpus": 16, "strategy": "fsdp2"}
PARAMETERS = 8_030_261_248
PROCESSES = 8 * PROCESS_BYTES.value


def memory(**keys: Any) -> Memory:
    (found,) = estimate(**ASKED | keys).estimates
    return found.memory


@pytest.mark.parametrize(("load", "copies"), [("every-rank", 8), ("rank0", 1), ("sharded", 0.5)])
def test_weights_are_read_by_those_who_are_said_to(load: str, copies: float) -> None:
    loaded = memory(load=load).host_load_bytes - PROCESSES
    assert loaded == pytest.approx(copies * 4 * PARAMETERS)
    assert memory(load=load, load_dtype="bf16").host_load_bytes - PROCESSES == pytest.approx(
        loaded / 2
    )


def test_a_checkpoint_has_parameters_master_and_states() -> None:
    assert memory().checkpoint_bytes == 12 * PARAMETERS
    assert memory(strategy="zero3").checkpoint_bytes == 14 * PARAMETERS


ADAPTERS = 16 * 32 * (2 * 8192 + 2 * (4096 + 1024) + 3 * (4096 + 14336))
"""Rank 16 beside 32 blocks' q and o, k and v, gate, up and down: in and out of each. [elements]"""
LINEAR = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
"""What bitsandbytes packs. [elements]"""
SCALES = LINEAR / 64 * (1 + 4 / 256)
"""A byte per 64 weights, an fp32 number per 256 of those. [B]"""


def test_a_base_is_read_in_bf16_and_adapters_are_made_in_fp32() -> None:
    found = memory(lora_rank=16)
    assert found.host_load_bytes - PROCESSES == 8 * (2 * PARAMETERS + 4 * ADAPTERS)
    assert found.checkpoint_bytes == 2 * PARAMETERS + 12 * ADAPTERS
    assert found.host_save_bytes - found.host_bytes == found.checkpoint_bytes


def test_packed_weights_are_read_whole_and_written_packed() -> None:
    found = memory(lora_rank=16, base_quantization="nf4")
    assert found.host_load_bytes - PROCESSES == 8 * (2 * PARAMETERS + 4 * ADAPTERS)
    packed = LINEAR / 2 + SCALES + 2 * (PARAMETERS - LINEAR)
    assert found.checkpoint_bytes == pytest.approx(packed + 12 * ADAPTERS, rel=1e-4)


def test_one_rank_gathers_what_is_sharded_to_write_it() -> None:
    found = memory()
    assert found.host_save_bytes - found.host_bytes == 12 * PARAMETERS
    found = memory(strategy="zero3")
    assert found.host_save_bytes - found.host_bytes == 2 * PARAMETERS


def test_the_verdict_needs_the_hosts_memory() -> None:
    keys = {"offload_parameters": "cpu"}
    assert memory(**keys).host_verdict is None
    assert memory(**keys, host_memory_bytes=1000 * GIB).host_verdict == "fits"
    held = memory(**keys).host_bytes
    assert memory(**keys, host_memory_bytes=held).host_verdict == "tight"
    assert memory(**keys, host_memory_bytes=50 * GIB).host_verdict == "does_not_fit"


def test_loading_counts_where_it_was_said_how() -> None:
    least = {"host_memory_bytes": 128 * GIB}
    assert memory(**least).host_verdict == "fits"
    assert memory(**least, load="every-rank").host_verdict == "does_not_fit"
    assert memory(**least, load="rank0").host_verdict == "fits"


def test_a_node_type_brings_its_memory() -> None:
    found = memory(node="p4d-24xlarge")
    assert found.host_memory_bytes == 1152 * GIB
    assert memory(node="p4d-24xlarge", host_memory_bytes=GIB).host_memory_bytes == GIB


def test_too_little_host_memory_is_no_fit() -> None:
    answer = estimate(**ASKED, offload_parameters="cpu", host_memory_bytes=50 * GIB)
    assert answer.estimates[0].verdict == "fits"
    assert not answer.fits
