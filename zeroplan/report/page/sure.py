"""How far off the answer may be: the band of the time, the parts and the margin of the memory."""

from collections import Counter
from pathlib import Path

from zeroplan.estimation.record import Estimate, StrategyEstimate
from zeroplan.estimation.tables import verdict_words
from zeroplan.hardware import Catalogue, load_catalogue
from zeroplan.hardware.profile import Gpu
from zeroplan.memory.device import fragmentation
from zeroplan.report.page.fit import beyond, chosen
from zeroplan.report.page.parts import paragraphs, scrolled
from zeroplan.rows import Cell, Column, Table, significant
from zeroplan.timing.band import FASTER, SLOWER
from zeroplan.units import GIB

__all__ = ["sure"]


def sure(answer: Estimate, profiles: Path | None) -> str:
    """Return how far off the answer may be, and what it rests on."""
    catalogue = load_catalogue(profiles)
    gpu = catalogue.gpu(answer.inputs.cluster.gpu or "")
    table = scrolled(_device_table(answer, gpu))
    rests = paragraphs((_counted(answer), *answer.hypothetical))
    return paragraphs((*_time(chosen(answer)), *_memory(gpu, catalogue))) + table + rests


def _time(each: StrategyEstimate) -> list[str]:
    low, high = each.time.low_seconds, each.time.high_seconds
    if low is None or high is None:
        return []
    return [
        (
            f"Time: a step of {each.strategy} should take between {significant(low)} and "
            f"{significant(high)} s in eight cases of ten. At the least the band is "
            f"{100 * FASTER.value:.0f} % below and {100 * SLOWER.value:.0f} % above the figure: "
            f"{FASTER.source}. Figures of the hardware that nobody measured widen it."
        )
    ]


def _memory(gpu: Gpu, catalogue: Catalogue) -> list[str]:
    """Say what the columns of the table are, and the rule of the verdict."""
    share, sources = fragmentation(gpu), catalogue.sources()
    source = sources[share.source].title if share.source in sources else share.source
    percent = 100 * share.value
    spread = percent * (share.rel_uncertainty or 0.0)
    return [
        (
            "Memory: what tensors take follows from the order of the framework's events. In PyTorch's "
            "allocator every stream has a pool of its own, and what one frees no other can use: FSDP's "
            "all-gathers and reduce-scatters fill pools beside that of the computation. The pools "
            "reach their highest levels at different moments, so together they hold more than is live "
            f"at the peak. The allocator keeps about {percent:.0f} % more than those levels, between "
            f"{percent - spread:.0f} and {percent + spread:.0f} % within the margin; from {source}. "
            "Replays that keep more lie beyond the margin: near the limit, replay yours."
        ),
        (
            "The margin is that spread and what is not sure of the context and of NCCL, added up. A "
            "strategy fits where device plus margin is at most the usable memory, does not fit where "
            "device less margin is above it, and is tight in between."
        ),
    ]


def _device_table(answer: Estimate, gpu: Gpu) -> Table:
    """Return from tensors to the device and its margin, of what fits or is nearest to it. [GiB]"""
    told = [each for each in answer.estimates if each.fits] or [chosen(answer)]
    usable = (told[0].memory.usable_bytes or 0) / GIB
    heads = ("tensors at the peak", "pools' highest levels beyond it", "kept by the allocator")
    return Table(
        title=f"From tensors to the device [GiB], {significant(usable)} usable",
        columns=(
            Column(name="strategy", is_text=True),
            *(Column(name=head) for head in (*heads, "CUDA context", "NCCL", "device", "margin")),
            Column(name="verdict", is_text=True),
        ),
        rows=tuple(_device_row(each, gpu) for each in told),
    )


def _device_row(each: StrategyEstimate, gpu: Gpu) -> tuple[Cell, ...]:
    memory, allocated = each.memory, each.memory.peak_allocated_bytes
    device, usable = memory.device_bytes or 0, memory.usable_bytes or 0
    parts = beyond(allocated, memory.reserved_bytes or 0, device, gpu)
    margin, words = parts.half_band_bytes, verdict_words(each)
    low, high, limit = (
        significant(size / GIB) for size in (device - margin, device + margin, usable)
    )
    apart = round(parts.pools_bytes / GIB, 2)  # below that it is rounding to whole segments
    sizes = (parts.kept_bytes, parts.context_bytes, parts.nccl_bytes, device)
    return (
        each.strategy,
        allocated / GIB,
        apart,
        *(size / GIB for size in sizes),
        f"+/-{significant(margin / GIB)}",
        f"{words}: {low} to {high} of {limit}",
    )


def _counted(answer: Estimate) -> str:
    kinds = Counter(str(entry.kind) for entry in answer.assumptions)
    words = {
        "datasheet": "from datasheets",
        "measured": "measured",
        "fitted": "fitted to measurements",
        "assumed": "assumed",
    }
    counted = ", ".join(f"{kinds[kind]} {word}" for kind, word in words.items() if kinds[kind])
    return f"The answer rests on the {len(answer.assumptions)} figures below: {counted}."
