"""Which NICs of a node carry the traffic of its GPUs, by the paths between them."""

from collections import Counter

from zeroplan.calibration.topology import LEVELS, Topology

__all__ = ["nic_words", "nics_for_gpus"]

SWITCHED = ("PIX", "PXB")
"""Paths that do not pass the host: NICs on them are a GPU's own, or those of its neighbours too."""


def nics_for_gpus(seen: Topology) -> tuple[str, ...]:
    """Return the NICs that are nearest to some GPU, as NCCL chooses them (src/graph/paths.cc).

    NICs behind another socket only count where no GPU has a nearer one: what is left over serves
    storage and management.
    """
    nearest = {gpu: _nearest(seen, gpu) for gpu in seen.gpus}
    near = {gpu: nics for gpu, (level, nics) in nearest.items() if level < LEVELS.index("SYS")}
    chosen = near or {gpu: nics for gpu, (_, nics) in nearest.items()}
    used = {nic for nics in chosen.values() for nic in nics}
    return tuple(nic for nic in seen.nics if nic in used)


def _nearest(seen: Topology, gpu: str) -> tuple[int, tuple[str, ...]]:
    """Return the level of the nearest NICs of a GPU, and those NICs."""
    levels = {nic: LEVELS.index(seen.paths[gpu, nic]) for nic in seen.nics}
    least = min(levels.values(), default=len(LEVELS))
    return least, tuple(nic for nic, level in levels.items() if level == least)


def nic_words(seen: Topology, nics: tuple[str, ...]) -> str:
    """Say how NICs and GPUs belong together: rails, or shared."""
    if not nics:
        return "no NIC shown"
    count = f"{len(nics)} NIC{'s' * (len(nics) > 1)}"
    behind = [_nearest(seen, gpu) for gpu in seen.gpus]
    level = LEVELS[max(level for level, _ in behind)]
    if level in SWITCHED and len(nics) % len(seen.gpus) == 0 and _is_even(behind):
        return f"{count}, {len(nics) // len(seen.gpus)} a GPU ({level}): a rail each"
    return f"{count} shared by {len(seen.gpus)} GPUs (farthest {level})"


def _is_even(behind: list[tuple[int, tuple[str, ...]]]) -> bool:
    """Whether GPUs that share NICs are as many for each NIC."""
    return len(set(Counter(nic for _, nics in behind for nic in nics).values())) == 1
