"""The shipped profiles are whole, cited, dense and equal to what the makers print."""

import re
from collections.abc import Iterator

import pytest

from zeroplan.hardware import Choice, Gpu, Quantity, load_catalogue
from zeroplan.hardware.check import faults
from zeroplan.hardware.profile import Profile, entries
from zeroplan.units import GIB, TERA

CATALOGUE = load_catalogue()

GPUS = """
v100-sxm2-16gb v100-sxm2-32gb v100-pcie-32gb a100-sxm4-40gb a100-sxm4-80gb a100-pcie-40gb
a100-pcie-80gb a800-sxm4-80gb a10 a10g a30 a40 rtx-a5000 rtx-a6000 rtx-3090 rtx-3090-ti rtx-4090
rtx-4090-d rtx-5090 l4 l40 l40s rtx-6000-ada rtx-pro-6000-blackwell-server h100-pcie-80gb
h100-nvl-94gb h100-sxm5-80gb h200-sxm-141gb h20 h800-sxm5-80gb gh200-96gb gh200-141gb b200-sxm
b300-sxm gb200 gb300 mi210 mi250 mi250x mi300x mi325x mi350x mi355x gaudi2 gaudi3
h100-sxm-96gb-hbm2e titan-rtx rtx-4070-ti-super
"""
LINKS = """
nvlink2 nvlink3 nvlink4 nvlink5 nvlink4-h800 pcie3 pcie4 pcie5 pcie3-no-p2p pcie4-no-p2p
pcie5-no-p2p ib-hdr200 ib-ndr400 ib-xdr800 roce-100 roce-200 roce-400 efa-v1 efa-v2 efa-v3
slingshot-11 ethernet-1g ethernet-10g ethernet-25g ethernet-100g ethernet-400g
"""


def profiles() -> Iterator[Profile]:
    yield from map(CATALOGUE.gpu, CATALOGUE.gpu_ids())
    yield from map(CATALOGUE.link, CATALOGUE.link_ids())
    yield from map(CATALOGUE.node, CATALOGUE.node_ids())


def cited() -> Iterator[tuple[str, Quantity | Choice]]:
    for profile in profiles():
        yield from ((f"{profile.id}: {key}", entry) for key, entry in entries(profile))


def test_no_shipped_profile_has_a_fault() -> None:
    assert not list(faults(CATALOGUE))


def test_every_gpu_and_link_that_is_promised_is_there() -> None:
    assert set(GPUS.split()) <= set(CATALOGUE.gpu_ids())
    assert set(LINKS.split()) <= set(CATALOGUE.link_ids())


def test_every_number_cites_a_source_that_resolves() -> None:
    sources = CATALOGUE.sources()
    assert [place for place, entry in cited() if not sources[entry.source].title] == []


OWN = {"records", "topology", "told"}
"""Sources of what `zeroplan calibrate` writes into a folder of one's own."""


def test_every_source_is_cited_or_waits_for_a_profile_of_ones_own() -> None:
    assert set(CATALOGUE.sources()) - OWN == {entry.source for _, entry in cited()}


def test_what_is_assumed_says_from_what_when_we_judged_it_ourselves() -> None:
    silent = [
        place
        for place, entry in cited()
        if isinstance(entry, Quantity) and entry.source == "judgement" and not entry.note
    ]
    assert silent == []


def test_our_own_judgement_is_never_called_a_datasheet() -> None:
    own = {"judgement", "tensor-rate-rule"}
    assert [p for p, entry in cited() if entry.source in own and entry.kind != "assumed"] == []


@pytest.mark.parametrize(
    "gpu_id", [gpu_id for gpu_id in CATALOGUE.gpu_ids() if not gpu_id.startswith("gaudi")]
)
def test_tensor_rates_double_with_every_halving_of_the_dtype(gpu_id: str) -> None:
    """A rate with sparsity beside one without would be off by two."""
    gpu = CATALOGUE.gpu(gpu_id)
    peaks = {dtype: peak.value for dtype, peak in gpu.peak_flop_per_second.items()}
    bf16 = peaks.get("bf16", peaks["fp16"])
    for dtype, ratio in {"fp16": 1, "tf32": 0.5, "fp8": 2}.items():
        if dtype in peaks:
            assert peaks[dtype] / bf16 == pytest.approx(ratio, rel=0.05), dtype


@pytest.mark.parametrize("gpu_id", CATALOGUE.gpu_ids())
def test_a_datasheet_peak_is_not_marked_as_sparse(gpu_id: str) -> None:
    peaks = CATALOGUE.gpu(gpu_id).peak_flop_per_second.values()
    assert not any(re.search("spars", peak.note, re.IGNORECASE) for peak in peaks)


@pytest.mark.published
@pytest.mark.parametrize(
    ("gpu", "dtype", "teraflop_per_second"),
    [  # NVIDIA and AMD datasheets, the column without sparsity
        ("v100-sxm2-32gb", "fp16", 125),
        ("a100-sxm4-80gb", "bf16", 312),
        ("a100-sxm4-80gb", "tf32", 156),
        ("a100-sxm4-80gb", "fp32", 19.5),
        ("l4", "bf16", 121),
        ("l40", "bf16", 181.05),
        ("l40s", "bf16", 362.05),
        ("h100-pcie-80gb", "bf16", 756),
        ("h100-sxm5-80gb", "bf16", 989.4),
        ("h100-sxm5-80gb", "fp8", 1978.9),
        ("h100-sxm5-80gb", "tf32", 494.7),
        ("h200-sxm-141gb", "bf16", 989.4),
        ("h20", "bf16", 148),
        ("b200-sxm", "bf16", 2250),
        ("gb200", "bf16", 2500),
        ("mi300x", "bf16", 1307.4),
        ("rtx-4090", "bf16", 165.2),
    ],
)
def test_peaks_are_the_dense_ones_printed(gpu: str, dtype: str, teraflop_per_second: float) -> None:
    peak = CATALOGUE.gpu(gpu).peak_flop_per_second[dtype].value
    assert peak == pytest.approx(teraflop_per_second * TERA, rel=1e-3)


@pytest.mark.published
@pytest.mark.parametrize(
    ("gpu", "terabyte_per_second", "watts"),
    [  # NVIDIA and AMD datasheets
        ("v100-sxm2-32gb", 0.9, 300),
        ("a100-sxm4-40gb", 1.555, 400),
        ("a100-sxm4-80gb", 2.039, 400),
        ("h100-sxm5-80gb", 3.35, 700),
        ("h100-sxm-96gb-hbm2e", 2.4, 500),
        ("h200-sxm-141gb", 4.8, 700),
        ("b200-sxm", 7.7, 1000),
        ("mi300x", 5.3, 750),
    ],
)
def test_memory_rate_and_power_are_the_ones_printed(
    gpu: str, terabyte_per_second: float, watts: float
) -> None:
    profile = CATALOGUE.gpu(gpu)
    assert profile.power_watts is not None
    assert profile.power_watts.value == watts
    assert profile.hbm_bytes_per_second.value == pytest.approx(terabyte_per_second * TERA)


@pytest.mark.published
@pytest.mark.parametrize(
    ("gpu", "gib"),
    [  # the lower end of what PyTorch's out-of-memory messages state as total capacity
        ("v100-sxm2-16gb", 15.75),
        ("v100-sxm2-32gb", 31.74),
        ("a100-sxm4-40gb", 39.50),
        ("a100-sxm4-80gb", 79.14),
        ("a10g", 22.03),
        ("l40s", 44.39),
        ("rtx-4090", 23.68),
        ("h100-sxm5-80gb", 79.10),
        ("h100-sxm-96gb-hbm2e", 95),
        ("h200-sxm-141gb", 139.80),
        ("b200-sxm", 178.35),
        ("b300-sxm", 267.69),
        ("mi300x", 191.69),
    ],
)
def test_usable_memory_is_what_a_framework_sees(gpu: str, gib: float) -> None:
    usable = CATALOGUE.gpu(gpu).usable_bytes
    assert usable.kind == "measured"
    assert usable.value == pytest.approx(gib * GIB, abs=1)


@pytest.mark.parametrize("gpu_id", CATALOGUE.gpu_ids())
def test_usable_memory_is_a_little_less_than_the_nameplate(gpu_id: str) -> None:
    gpu = CATALOGUE.gpu(gpu_id)
    assert 0.9 < gpu.usable_bytes.value / gpu.memory_bytes.value < 1


@pytest.mark.parametrize("link", CATALOGUE.link_ids())
def test_a_fitted_link_says_from_what_and_by_which_command(link: str) -> None:
    profile = CATALOGUE.link(link)
    from_fit = [key for key, entry in entries(profile) if entry.source == "calibration"]
    assert bool(from_fit) == (profile.fit is not None)
    if profile.fit is not None:
        assert profile.fit.command.startswith("zeroplan calibrate --collectives ")
        assert f" --link {link}" in profile.fit.command
        assert profile.fit.sources
        assert profile.fit.median_error_large is not None
        assert profile.fit.points > 4
        assert profile.fit.smallest_bytes < profile.fit.largest_bytes


@pytest.mark.parametrize(
    ("link", "gigabit_per_second"),
    [("ib-hdr200", 200), ("ib-ndr400", 400), ("ib-xdr800", 800), ("roce-100", 100), ("efa-v3", 200)]
    + [(f"ethernet-{rate}g", rate) for rate in (1, 10, 25, 100, 400)],
)
def test_the_line_rate_of_a_nic_is_in_its_name(link: str, gigabit_per_second: float) -> None:
    rate = CATALOGUE.link(link).bandwidth_bytes_per_second.value
    assert rate == pytest.approx(gigabit_per_second * 1e9 / 8)


@pytest.mark.parametrize("node_id", CATALOGUE.node_ids())
def test_the_nics_of_a_node_have_the_rate_of_its_link(node_id: str) -> None:
    node = CATALOGUE.node(node_id)
    link = CATALOGUE.link(node.node_link.value)
    rate = node.nic_bytes_per_second or link.bandwidth_bytes_per_second
    assert rate.value == link.bandwidth_bytes_per_second.value
    assert (node.nic_bytes_per_second is None) == (node.nics is None)


@pytest.mark.parametrize("node_id", CATALOGUE.node_ids())
def test_a_node_has_the_link_inside_that_its_gpus_have(node_id: str) -> None:
    node = CATALOGUE.node(node_id)
    gpu = CATALOGUE.gpu(node.gpu.value)
    stem = gpu.intra_link.value.removesuffix("-no-p2p")
    assert node.intra_link.value.removesuffix("-no-p2p") == stem


def test_the_default_gpu_is_joined_as_in_a_dgx() -> None:
    gpu: Gpu = CATALOGUE.gpu("h100-sxm5-80gb")
    node = CATALOGUE.node("dgx-h100")
    assert (gpu.intra_link.value, gpu.node_link.value) == ("nvlink4", "ib-ndr400")
    assert (node.intra_link.value, node.node_link.value) == ("nvlink4", "ib-ndr400")
    assert gpu.gpus_per_node.value == node.gpus.value == 8
