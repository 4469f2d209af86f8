"""The three records a profile file can hold; the names of their fields are the keys of the file."""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from zeroplan.hardware.quantity import Choice, Quantity
from zeroplan.records import dataclass, field, fields
from zeroplan.units import DTYPE_BYTES

__all__ = [
    "MAPPING_KEYS",
    "SCHEMA_VERSION",
    "Fit",
    "Gpu",
    "Link",
    "Node",
    "Profile",
    "entries",
    "nics_of_node",
    "ring_efficiency",
]

SCHEMA_VERSION: Final = 1
"""Version of the form of the files; raised by any change that old files do not survive."""

COLLECTIVES: Final = ("all_gather", "reduce_scatter", "all_reduce", "broadcast")
"""Those that a link can have gloo's figures of."""

MAPPING_KEYS: Final = {
    "peak_flop_per_second": tuple(DTYPE_BYTES),
    "matmul_efficiency_by_dtype": tuple(DTYPE_BYTES),
    "usual_links": ("ib", "roce", "efa", "ethernet", "nvlink"),
    "gloo_bytes_per_second": COLLECTIVES,
    "gloo_step_seconds": COLLECTIVES,
}
"""What the tables of a profile may have as keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """What one GPU (or accelerator) can do."""

    id: str
    """File name without its ending."""
    revision: int
    """Raised by any change of a number."""
    name: str
    """Name for a reader."""
    family: str
    """Architecture in lower case: volta, ampere, hopper, cdna3 ..."""
    memory_bytes: Quantity
    """Nameplate memory; makers count a GB of memory as 2^30 bytes. [B]"""
    usable_bytes: Quantity
    """What a framework sees as total memory, the lower end where a range was seen. [B]"""
    hbm_bytes_per_second: Quantity
    """Peak memory bandwidth. [B/s]"""
    hbm_efficiency: Quantity
    """Share of the peak that large streaming kernels reach, in (0, 1]."""
    peak_flop_per_second: Mapping[str, Quantity]
    """Dense matrix peak by dtype (fp32, tf32, bf16, fp16, fp8); absent where the GPU lacks it."""
    matmul_efficiency: Quantity
    """Share of the 16-bit peak that large, deep matmuls reach, in (0, 1]."""
    matmul_efficiency_by_dtype: Mapping[str, Quantity] = field(default_factory=dict)
    """The same share of another dtype's own peak, where its matmuls were timed."""
    load_share: Quantity
    """Share of a lone kernel's rate that is left to matmuls and attention in a training step (power
    limit), in (0, 1]."""
    matmul_depth_elements: Quantity
    """Inner dimension at which a matmul takes twice as long per FLOP. [elements]"""
    matmul_start_seconds: Quantity
    """Time of a matmul before its first FLOP. [s]"""
    attention_efficiency: Quantity
    """Share of the 16-bit peak that fused causal attention, alone on the GPU, reaches in forward
    with long sequences, in (0, 1]."""
    attention_backward_efficiency: Quantity
    """The same in backward, in (0, 1]."""
    overlap_slowdown: Quantity
    """Share by which kernels take longer while a collective runs beside them."""
    kernel_seconds: Quantity
    """Shortest time from the start of one kernel to that of the next. [s]"""
    sms: Quantity | None = None
    """Streaming multiprocessors (AMD: compute units)."""
    power_watts: Quantity | None = None
    """Power limit as shipped. [W]"""
    cublas_workspace_bytes: Quantity
    """cuBLAS workspace of one handle on one stream, from the caching allocator. [B]"""
    fragmentation: Quantity | None = None
    """Reserved over the highest that a stream's pool of the caching allocator reaches, less one, as
    measured; by default the guess of `memory/device.py`."""
    context_bytes: Quantity
    """Memory of the driver context and loaded kernels, outside the allocator. [B]"""
    collective_copy_bytes_per_second: Quantity
    """Rate at which an out-of-place collective copies its own shard. [B/s]"""
    host_link_bytes_per_second: Quantity | None = None
    """Line rate between GPU and host memory in one direction. [B/s]"""
    gpus_per_node: Quantity
    """GPUs in the usual node."""
    domain_gpus: Quantity | None = None
    """GPUs in one NVLink domain, where it is larger than a node."""
    intra_link: Choice
    """Usual link inside a node."""
    node_link: Choice
    """Usual link between nodes."""
    usual_links: Mapping[str, Choice]
    """Usual link by what people call it: ib, roce, efa, ethernet, nvlink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How the fitted numbers of a link came about, and where they hold."""

    command: str
    """The command that wrote the profile."""
    date: str
    """The day on which it ran."""
    sources: tuple[str, ...]
    """What the table of measurements names as its sources."""
    points: int
    """Measured collectives that were used."""
    smallest_bytes: int
    """Smallest message among them, in nccl-tests' convention. [B]"""
    largest_bytes: int
    """Largest message among them. [B]"""
    fewest_ranks: int
    """Smallest group among them."""
    most_ranks: int
    """Largest group among them."""
    median_error_large: float | None = None
    """Median of |predicted / measured - 1| above 16 MiB."""
    median_error_medium: float | None = None
    """The same from 1 to 16 MiB."""
    median_error_small: float | None = None
    """The same up to 1 MiB."""
    held_out: str = ""
    """What was left out in turn for the figures below: "source", or "file" of the only source."""
    held_out_error_large: float | None = None
    """Median error above 16 MiB on what was left out."""
    held_out_error_medium: float | None = None
    """The same from 1 to 16 MiB."""
    held_out_error_small: float | None = None
    """The same up to 1 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What one link carries, and the constants of the model of collectives on it.

    `comm/algorithms.py` has the formulas. A ring of `n` ranks on `N` nodes that sends `W` bytes per
    rank takes about `base + (n - N) * latency_in_node + (N - 1) * latency_between_nodes +
    W / bandwidth`, or the same with the constants of LL (`small_message_*`) or LL128.
    """

    id: str
    """File name without its ending."""
    revision: int
    """Raised by any change of a number."""
    name: str
    """Name for a reader."""
    kind: Literal[
        "nvlink",
        "xgmi",
        "pcie",
        "loopback",
        "infiniband",
        "roce",
        "efa",
        "slingshot",
        "omni-path",
        "ethernet",
    ]
    """Technology."""
    scope: Literal["node", "cluster"]
    """Inside a node (rates are per GPU) or between nodes (rates are per NIC)."""
    bandwidth_bytes_per_second: Quantity
    """Line rate in one direction, per GPU inside a node, per NIC between nodes. [B/s]"""
    bandwidth_efficiency: Quantity
    """Share of the line rate that a ring reaches with large messages, in (0, 1]."""
    ring_efficiency_by_gpus: Mapping[int, Quantity] = field(default_factory=dict)
    """The same by number of GPUs, where it falls with the count (shared PCIe, host memory)."""
    latency_seconds: Quantity
    """Time of one ring step over this link. [s]"""
    base_seconds: Quantity
    """Time of a collective before the first step. [s]"""
    small_message_efficiency: Quantity
    """Share of the ring bandwidth left to the low-latency protocols, in (0, 1]."""
    small_message_latency_seconds: Quantity
    """Time of one ring step with the low-latency protocols. [s]"""
    small_message_base_seconds: Quantity
    """Time before the first step with the low-latency protocols. [s]"""
    ll128_efficiency: Quantity | None = None
    """Share of the ring bandwidth left to LL128, where NCCL uses it, in (0, 1]."""
    ll128_latency_seconds: Quantity | None = None
    """Time of one ring step with LL128. [s]"""
    ll128_base_seconds: Quantity | None = None
    """Time before the first step with LL128. [s]"""
    switch_efficiency: Quantity | None = None
    """Share of the line rate at which the switch in a node sums all-reduces, if it can."""
    switch_latency_seconds: Quantity | None = None
    """Time of such an all-reduce before its first byte, for each GPU of the node. [s]"""
    tree_efficiency: Quantity | None = None
    """Share of the bandwidth that all-reduces reach in a tree of nodes, if they use one."""
    host_bytes_per_second: Quantity | None = None
    """Most that the sockets of a host carry in one direction, whatever its NICs. [B/s]"""
    gloo_bytes_per_second: Mapping[str, Quantity] = field(default_factory=dict)
    """What a rank sends by gloo in large messages, by collective. [B/s]"""
    gloo_step_seconds: Mapping[str, Quantity] = field(default_factory=dict)
    """Time of one step of gloo's ring or tree, by collective. [s]"""
    nics_per_gpu: Quantity | None = None
    """NICs for each GPU where the node type is not given; this or `nics_per_node`."""
    nics_per_node: Quantity | None = None
    """NICs of a node whose type is not given, shared by its GPUs; this or `nics_per_gpu`."""
    fit: Fit | None = None
    """How the fitted numbers came about, where `zeroplan calibrate` wrote the profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What one can buy or rent: GPUs, the links between them, NICs and a price."""

    id: str
    """File name without its ending."""
    revision: int
    """Raised by any change of a number."""
    name: str
    """Name as the provider writes it."""
    provider: str
    """Who builds or rents it."""
    topology: str = ""
    """How the GPUs are joined, in words."""
    gpu: Choice
    """GPU profile."""
    gpus: Quantity
    """GPUs in the node."""
    intra_link: Choice
    """Link inside the node."""
    node_link: Choice
    """Link between nodes."""
    nics: Quantity | None = None
    """NICs that carry traffic between GPUs of different nodes."""
    nic_bytes_per_second: Quantity | None = None
    """Line rate of one NIC in one direction. [B/s]"""
    host_memory_bytes: Quantity | None = None
    """Memory of the host. [B]"""
    usd_per_hour: Quantity | None = None
    """Price of the whole node. [USD/h]"""
    price_date: str = ""
    """When the price was read, as precisely as the source tells."""


Profile = Gpu | Link | Node


def nics_of_node(link: Link, gpus_per_node: int) -> float:
    """Return the NICs of a node whose type is not given."""
    if link.nics_per_node is not None:
        return link.nics_per_node.value
    return gpus_per_node * (link.nics_per_gpu.value if link.nics_per_gpu is not None else 1)


def ring_efficiency(link: Link, gpus: int) -> Quantity:
    """Return the share of the line rate that a ring of so many GPUs of one node reaches.

    Between two measured counts the larger one is taken, beyond the last one the last.
    """
    by_gpus = link.ring_efficiency_by_gpus
    if not by_gpus:
        return link.bandwidth_efficiency
    return by_gpus[min((count for count in by_gpus if count >= gpus), default=max(by_gpus))]


def entries(profile: Profile) -> Iterator[tuple[str, Quantity | Choice]]:
    """Walk the numbers and choices of a profile, each with its key in the file."""
    for spec in fields(profile):
        value = getattr(profile, spec.name)
        if isinstance(value, Quantity | Choice):
            yield spec.name, value
        elif isinstance(value, Mapping):
            yield from ((f"{spec.name}.{key}", entry) for key, entry in value.items())
