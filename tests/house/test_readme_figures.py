"""The figures in the README's sentences are those of the answers that they are about."""

import re
from pathlib import Path
from typing import Final

import pytest

from zeroplan import StrategyEstimate, estimate
from zeroplan.hardware import load_catalogue
from zeroplan.units import GIB

README: Final = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, StrategyEstimate]]:
    """Answers by link and strategy."""
    links = ("ib", "roce-100", "ethernet-100g")
    answers = {link: estimate(model="70b", gpus=64, link=link) for link in links}
    return {link: {e.strategy: e for e in answer.estimates} for link, answer in answers.items()}


def _told(sentence: str) -> list[float]:
    """Return the numbers at the `#` of a sentence."""
    pattern = re.escape(sentence).replace("\\#", r"(\d+(?:\.\d+)?)")
    match = re.search(pattern, README)
    assert match, sentence
    return [float(number) for number in match.groups()]


def _gib(*sizes: int) -> float:
    return round(sum(sizes) / GIB, 1)


def test_what_fits(found: dict[str, dict[str, StrategyEstimate]]) -> None:
    ib = found["ib"]
    fits = {name for name, each in ib.items() if each.verdict == "fits"}
    assert fits == {"fsdp2", "zero3"}
    told = _told("FSDP2 needs # of the # GiB that a GPU has, and ZeRO-3 #.")
    memory = ib["fsdp2"].memory
    assert memory.device_bytes
    assert memory.usable_bytes
    assert ib["zero3"].memory.device_bytes
    assert told == [
        _gib(memory.device_bytes),
        _gib(memory.usable_bytes),
        _gib(ib["zero3"].memory.device_bytes),
    ]


def test_what_the_peak_is_made_of(found: dict[str, dict[str, StrategyEstimate]]) -> None:
    memory = found["ib"]["fsdp2"].memory
    part = memory.peak_breakdown_bytes
    assert memory.peak_moment == "backward, block 78"
    assert _told("at block # of 0 to #. Of # GiB in tensors and workspaces, # are Adam's") == [
        78, 79, _gib(memory.peak_allocated_bytes), _gib(part.optimizer),
    ]  # fmt: skip
    told = "# gathered parameters with the buffer in which they arrive, # activations, "
    told += "# gradients that are yet to be reduced, # the GPU's own share of the parameters, and "
    told += "# smaller ones"
    assert _told(told) == [
        _gib(part.unsharded_parameters, part.all_gather_buffers),
        _gib(part.activations, part.loss),
        _gib(part.unsharded_gradients, part.reduce_scatter_buffers),
        _gib(part.parameters),
        _gib(part.gradients, part.temporaries, part.workspaces, part.other),
    ]
    assert memory.device_bytes
    beyond = memory.device_bytes - memory.peak_allocated_bytes
    told = "Beyond tensors come # GiB that the allocator keeps or NCCL and the CUDA context need"
    assert _told(told) == [_gib(beyond)]


def test_what_another_link_costs(found: dict[str, dict[str, StrategyEstimate]]) -> None:
    def times(link: str, strategy: str) -> float:
        slow, fast = (found[name][strategy].time.step_seconds for name in (link, "ib"))
        assert slow
        assert fast
        return slow / fast

    ethernet = [round(times("ethernet-100g", name)) for name in ("fsdp2", "zero3")]
    assert _told("A factor of # with FSDP2, and # with ZeRO-3") == ethernet
    larger = [
        estimate(model="70b", gpus=64, link=link, strategy="zero3", micro_batch_size=4).estimates[0]
        for link in ("ib", "ethernet-100g")
    ]
    assert larger[0].verdict == "fits"
    fast, slow = (each.time.step_seconds or 0.0 for each in larger)
    assert _told("ZeRO-3 still fits, and the factor is #") == [round(slow / fast, 1)]
    roce = [round(times("roce-100", name), 1) for name in ("fsdp2", "zero3")]
    assert _told("a step takes # to # times as long") == roce
    link = load_catalogue().link("ethernet-100g")
    assert link.host_bytes_per_second
    (gigabytes,) = _told("sockets reach about # GB/s")
    assert gigabytes * 1e9 == pytest.approx(link.host_bytes_per_second.value, rel=0.02)
    assert link.nics_per_node
    assert link.nics_per_node.value == 1
