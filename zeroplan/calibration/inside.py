"""Which link joins the GPUs of a node, by the paths between them."""

from math import log
from typing import Final

from zeroplan.calibration.topology import Topology, nvlinks
from zeroplan.hardware import Catalogue, Choice, Gpu, Link
from zeroplan.records import dataclass

__all__ = ["NO_PEER_ACCESS", "TOPOLOGY", "Inside", "inside", "pcie_of"]

TOPOLOGY: Final = "topology"
"""Key of the source: the matrix."""

WHOLE: Final = {"nvlink2": 6, "nvlink3": 12, "nvlink4": 18, "nvlink5": 18}
"""NVLinks of a GPU that has all of its generation: data sheets of V100, A100, H100 and B200."""
MOST: Final = max(WHOLE.values())
RTX_BYTES_PER_SECOND: Final = 14.0625e9
BRIDGE_BYTES_PER_SECOND: Final = 25e9
"""One NVLink of a bridge between cards, in one direction: 112.5 GB/s both ways over 4 links on RTX
A6000, 600 GB/s over 12 on A100 PCIe (NVIDIA's data sheets). [B/s]"""
NO_PEER_ACCESS: Final = "-no-p2p"
"""Ending of the links through host memory."""
CLOSE: Final = 0.1
"""How far a profile may be from what the counted NVLinks carry without a word. [1]"""
FAR: Final = 0.4
"""Beyond this no profile says anything of them, and PCIe is taken. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """The link that a ring of all GPUs runs on."""

    link: Choice
    words: str
    """How the GPUs are joined."""
    notes: tuple[str, ...] = ()
    """What to know before relying on it."""


def inside(seen: Topology, gpu: Gpu, catalogue: Catalogue) -> Inside:
    """Return the link inside a node: NVLink if a ring of all GPUs stays on it, else PCIe.

    A ring is as fast as its slowest part, so NVLink between pairs helps no ring of more.
    """
    if len(seen.gpus) == 1:
        choice = Choice(
            value=gpu.intra_link.value,
            kind="assumed",
            source="judgement",
            note="one GPU: nothing joins it to another",
        )
        return Inside(link=choice, words="one GPU")
    links = _links_per_gpu(seen)
    if not (links and _has_ring(seen)):
        joined = _joined(seen)
        note = f"NVLink joins only {joined}; a ring of all GPUs passes PCIe." if joined else ""
        if not joined and "nvlink" in gpu.usual_links:
            note = f"{gpu.id} usually has NVLink; this matrix shows none (is it switched off?)."
        return _pcie(seen, gpu, catalogue, note)
    found, share = _nearest_nvlink(links, gpu, catalogue)
    if abs(share - 1) <= CLOSE:
        choice = Choice(value=found.id, kind="measured", source=TOPOLOGY)
        return Inside(link=choice, words=f"{links} NVLinks a GPU")
    note = (
        f"{links} NVLinks a GPU carry {share:.0%} of {found.id}, the nearest profile: fit your own "
        "to a log of nccl-tests, and name it with --intra-link."
    )
    if share < 1 - FAR:
        return _pcie(seen, gpu, catalogue, note)
    choice = Choice(value=found.id, kind="assumed", source="judgement", note=note)
    return Inside(link=choice, words=f"{links} NVLinks a GPU", notes=(note,))


def _pcie(seen: Topology, gpu: Gpu, catalogue: Catalogue, why: str) -> Inside:
    """Return the PCIe link of a GPU, with peer access or without."""
    found = pcie_of(gpu, catalogue)
    paths = {seen.paths[a, b] for a in seen.gpus for b in seen.gpus if a != b}
    words = f"PCIe ({', '.join(sorted(paths))})"
    if seen.peer_access is not None:
        found = found.removesuffix(NO_PEER_ACCESS) + ("" if seen.peer_access else NO_PEER_ACCESS)
        choice = Choice(value=found, kind="measured", source=TOPOLOGY, note=why)
        return Inside(link=choice, words=words, notes=(why,) if why else ())
    asked = (
        f"Whether GPUs reach each other's memory is not in this matrix; {found} is taken. Paste "
        "`nvidia-smi topo -p2p r` too."
    )
    choice = Choice(value=found, kind="assumed", source="judgement", note=why)
    return Inside(link=choice, words=words, notes=(why, asked) if why else (asked,))


def pcie_of(gpu: Gpu, catalogue: Catalogue) -> str:
    """Return the PCIe link of a GPU: its usual link, or that of its generation."""
    if catalogue.link(gpu.intra_link.value).kind == "pcie":
        return gpu.intra_link.value
    rate = gpu.host_link_bytes_per_second
    links = [catalogue.link(each) for each in catalogue.link_ids()]
    known = [x for x in links if x.kind == "pcie" and not x.id.endswith(NO_PEER_ACCESS)]
    wanted = rate.value if rate is not None else 0.0
    return min(known, key=lambda each: abs(each.bandwidth_bytes_per_second.value - wanted)).id


def _links_per_gpu(seen: Topology) -> int:
    """Return the NVLinks of the GPU that has fewest.

    In a mesh each peer has links of its own. Through switches all peers share them: then they sum
    up to more than a GPU has.
    """
    counts = []
    for gpu in seen.gpus:
        to_peers = [nvlinks(seen.paths[gpu, peer]) for peer in seen.gpus if peer != gpu]
        counts.append(sum(to_peers) if sum(to_peers) <= MOST else max(to_peers))
    return min(counts)


def _nearest_nvlink(links: int, gpu: Gpu, catalogue: Catalogue) -> tuple[Link, float]:
    """Return the profile whose rate is nearest, and what the links carry of it. [1]"""
    usual = gpu.usual_links.get("nvlink")
    generation = usual.value.partition("-")[0] if usual else ""
    each = RTX_BYTES_PER_SECOND if gpu.id.startswith("rtx-") else BRIDGE_BYTES_PER_SECOND
    if generation in WHOLE:
        whole = catalogue.link(generation).bandwidth_bytes_per_second.value
        each = whole / WHOLE[generation]
    known = [catalogue.link(link_id) for link_id in catalogue.link_ids()]

    def distance(link: Link) -> tuple[float, bool]:
        rate = link.bandwidth_bytes_per_second.value
        return abs(log(links * each / rate)), not link.id.startswith(generation or "nvlink3")

    found = min((link for link in known if link.kind == "nvlink"), key=distance)
    return found, links * each / found.bandwidth_bytes_per_second.value


def _has_ring(seen: Topology) -> bool:
    """Whether NVLink joins all GPUs in a ring; two need one path."""
    first, *others = seen.gpus

    def goes_on(at: str, left: frozenset[str]) -> bool:
        if not left:
            return nvlinks(seen.paths[at, first]) > 0
        return any(
            nvlinks(seen.paths[at, gpu]) > 0 and goes_on(gpu, left - {gpu}) for gpu in sorted(left)
        )

    return goes_on(first, frozenset(others))


def _joined(seen: Topology) -> str:
    """Return the pairs of GPUs that NVLink joins, in words."""
    pairs = (
        f"{gpu} and {peer}"
        for at, gpu in enumerate(seen.gpus)
        for peer in seen.gpus[at + 1 :]
        if nvlinks(seen.paths[gpu, peer])
    )
    return ", ".join(pairs)
