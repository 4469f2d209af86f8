"""A log of nccl-tests becomes a link's profile."""

from pathlib import Path

import pytest

from zeroplan.calibration import calibrate_collectives
from zeroplan.errors import SpecError
from zeroplan.hardware import load_catalogue
from zeroplan.hardware.naming import gpu_of

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
        ("old_all_gather_rate_without_own_share", "ib-hdr200"),
        ("reduce_scatter_mpi_two_nodes", "ib-ndr400"),
    ],
)
def test_the_fitted_link_gives_the_log_back_within_its_residual(name: str, link: str) -> None:
    """The logs spread by 1.5 % around one latency and one bandwidth; the curve has a ramp."""
    found = calibrate_collectives(LOGS / f"{name}.log", link)
    (large,) = [e for e in found.errors if (e.collective, e.size_class) == ("all", "large")]
    assert large.points == 12  # from 32 MiB on, out of place and in place
    assert large.median < 0.035
    assert found.link.bandwidth_efficiency.kind == "fitted"


def test_what_is_no_log_is_told(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("bandwidth was fine")
    with pytest.raises(SpecError, match="nothing to fit: no table of nccl-tests"):
        calibrate_collectives(path, "nvlink4")
    with pytest.raises(SpecError, match="No such file"):
        calibrate_collectives(tmp_path / "missing.log", "nvlink4")
