"""A log of nccl-tests becomes a link's profile."""

from pathlib import Path
from statistics import median

import pytest

from zeroplan.calibration import calibrate_collectives
from zeroplan.calibration.logs import measured_log
from zeroplan.comm.collectives import collective_seconds
from zeroplan.errors import SpecError
from zeroplan.hardware import load_catalogue
from zeroplan.hardware.naming import gpu_of
from zeroplan.hardware.profile import ring_efficiency
from zeroplan.units import MIB

LOGS = Path(__file__).parent / "logs"


@pytest.mark.parametrize(
    ("device", "profile"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("NVIDIA H200", "h200-sxm-141gb"),
        ("AMD Instinct MI300X", "mi300x"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("NVIDIA L40S", "l40s"),
    ],
)
def test_a_device_is_found_by_the_driver_s_name(device: str, profile: str) -> None:
    assert gpu_of(device, load_catalogue()).id == profile


def test_a_device_without_a_profile_is_named() -> None:
    with pytest.raises(SpecError, match="'Voodoo2' has no GPU profile"):
        gpu_of("Voodoo2", load_catalogue())


@pytest.mark.parametrize(
    ("name", "link"),
    [
        ("all_gather_2_16_started_by_name", "nvlink4"),
        ("all_reduce_2_13_one_node", "nvlink3"),
        ("alltoall_without_in_place", "nvlink4"),
        ("broadcast_with_root", "nvlink3"),
        ("docker_json_log", "nvlink5"),
        ("folded_at_80_columns", "pcie4-no-p2p"),
        ("in_place_first_mscclpp_layout", "nvlink3"),
        ("kubernetes_prefixed_and_coloured", "nvlink4"),
        ("no_validation", "slingshot-11"),
        ("old_all_gather_rate_without_own_share", "ib-hdr200"),
        ("old_all_reduce_float_error", "nvlink2"),
        ("open_mpi_5_tags_four_nodes", "ib-ndr400"),
        ("pcie_box_two_gpus", "pcie4-no-p2p"),
        ("rccl_mi300x", "xgmi-mi300x"),
        ("reduce_scatter_mpi_two_nodes", "ib-ndr400"),
        ("srun_labels_two_sizes", "ib-hdr200"),
        ("three_runs_in_one_log", "ib-ndr400"),
        ("timestamps_2_18", "nvlink4"),
        ("version_1_in_milliseconds", "nvlink2"),
    ],
)
def test_a_fitted_profile_gives_its_log_back_within_its_residual(
    name: str, link: str, tmp_path: Path
) -> None:
    """The logs spread by 1.5 % around one latency and one bandwidth; the curve has a ramp."""
    path = LOGS / f"{name}.log"
    (tmp_path / "links").mkdir()
    found = calibrate_collectives(path, link, name="ours")
    (tmp_path / "links" / "ours.toml").write_text(found.to_toml(), encoding="utf-8")
    catalogue = load_catalogue(tmp_path)
    ours = catalogue.link("ours")
    assert ours.fit is not None
    rows, skipped = measured_log(path, ours, catalogue)
    assert not skipped
    ratios = [
        collective_seconds(row.call, row.wires, in_place=row.in_place) / row.seconds
        for row in rows
        if row.call.message_bytes > 16 * MIB
    ]
    assert ours.fit.median_error_large is not None
    assert ours.fit.median_error_large < 0.05
    assert median(abs(r - 1) for r in ratios) < ours.fit.median_error_large + 0.001
    band = ring_efficiency(ours, rows[0].call.group.ranks_per_node).rel_uncertainty
    assert band is not None
    assert sum(max(r, 1 / r) <= 1 + band for r in ratios) >= 0.9 * len(ratios)


def test_what_is_no_log_is_told(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("bandwidth was fine")
    with pytest.raises(SpecError, match="nothing to fit: no table of nccl-tests"):
        calibrate_collectives(path, "nvlink4")
    with pytest.raises(SpecError, match="No such file"):
        calibrate_collectives(tmp_path / "missing.log", "nvlink4")
