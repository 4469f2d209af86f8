"""A node's profile from `nvidia-smi topo -m`.

The matrices beside this file were written for these tests in the command's layout, after nodes that
people describe: HGX H100, DGX A100, DGX-2, DGX-1, bridged pairs of RTX 3090, PCIe boxes.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from zeroplan.calibration import Told, describe_node
from zeroplan.calibration.topology import parse_topology
from zeroplan.errors import SpecError
from zeroplan.hardware import load_catalogue
from zeroplan.hardware.check import faults

MATRICES = Path(__file__).parent / "topologies"


def matrix(name: str) -> str:
    return (MATRICES / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "gpu", "shape", "words"),
    [
        (
            "hgx_h100",
            "h100-sxm5-80gb",
            (8, "nvlink4", 8),
            "18 NVLinks a GPU; 8 NICs, 1 a GPU (PIX)",
        ),
        (
            "dgx_a100",
            "a100-sxm4-80gb",
            (8, "nvlink3", 8),
            "12 NVLinks a GPU; 8 NICs, 1 a GPU (PXB)",
        ),
        ("dgx_2_older_driver", "v100-sxm2-32gb", (16, "nvlink2", 8), "8 NICs shared by 16 GPUs"),
        ("dgx_1_cube", "v100-sxm2-16gb", (8, "nvlink2", 4), "6 NVLinks a GPU; 4 NICs shared by 8"),
        (
            "hgx_a100_mesh_no_nic",
            "a100-sxm4-40gb",
            (4, "nvlink3", None),
            "12 NVLinks a GPU; no NIC",
        ),
        (
            "four_h100_mesh",
            "h100-sxm5-80gb",
            (4, "nvlink4", 4),
            "18 NVLinks a GPU; 4 NICs, 1 a GPU",
        ),
        ("gb200_tray", "gb200", (4, "nvlink5", None), "18 NVLinks a GPU"),
        ("a100_pcie_bridge", "a100-pcie-80gb", (2, "nvlink3", 1), "1 NIC shared by 2 GPUs"),
        ("rtx_3090_pairs", "", (4, "pcie4-no-p2p", None), "PCIe (NODE, NV4, PHB)"),
        ("l40s_no_peer_access", "l40s", (8, "pcie4-no-p2p", 1), "1 NIC shared by 8 GPUs"),
        ("a10_four_with_peer_access", "a10", (4, "pcie4", None), "PCIe (PHB, SYS)"),
        ("h100_without_nvlink", "h100-sxm5-80gb", (8, "pcie5", 8), "PCIe (SYS); 8 NICs, 1 a GPU"),
        ("one_gpu", "l4", (1, "pcie4", None), "one GPU"),
    ],
)
def test_a_matrix_tells_gpus_link_and_nics(
    name: str, gpu: str, shape: tuple[int, str, int | None], words: str
) -> None:
    found = describe_node(MATRICES / f"{name}.txt", told=Told(gpu=gpu)).node
    nics = None if found.nics is None else int(found.nics.value)
    assert (int(found.gpus.value), found.intra_link.value, nics) == shape
    assert words in found.topology


@pytest.mark.parametrize(
    ("name", "gpu", "words"),
    [
        ("hgx_h100", "h100-sxm5-80gb", "not counted: mlx5_bond_0, mlx5_bond_1"),
        ("rtx_3090_pairs", "", "only GPU0 and GPU2, GPU1 and GPU3"),
        ("rtx_3090_pairs", "", "topo -p2p r"),
        ("h100_without_nvlink", "h100-sxm5-80gb", "usually has NVLink; this matrix shows none"),
        ("four_h100_mesh", "h100-sxm5-80gb", "--nic-gbps"),
        ("gb200_tray", "gb200", "--node-link"),
    ],
)
def test_what_the_matrix_leaves_open_is_said(name: str, gpu: str, words: str) -> None:
    found = describe_node(MATRICES / f"{name}.txt", told=Told(gpu=gpu))
    assert any(words in note for note in found.notes)


def test_what_is_told_wins_over_defaults() -> None:
    told = Told(gpu="h100-sxm5-80gb", intra_link="pcie5", node_link="roce", nic_gbps=200)
    found = describe_node(MATRICES / "hgx_h100.txt", told=told).node
    assert (found.intra_link.value, found.node_link.value) == ("pcie5", "roce-400")
    assert found.nic_bytes_per_second is not None
    assert found.nic_bytes_per_second.value == 25e9
    assert found.nic_bytes_per_second.source == "told"


def test_links_that_are_down_make_a_slower_profile(tmp_path: Path) -> None:
    """8 of 12 links of an A100 carry what an A800 has; 7 are said to be between profiles."""
    for links, link, notes in ((8, "nvlink3-a800", 0), (7, "nvlink3-a800", 1)):
        path = tmp_path / f"{links}.txt"
        path.write_text(matrix("dgx_a100").replace("NV12", f"NV{links}"), encoding="utf-8")
        found = describe_node(path, told=Told(gpu="a100-sxm4-80gb"))
        assert found.node.intra_link.value == link
        assert sum("the nearest profile" in note for note in found.notes) == notes


def test_a_bridge_slower_than_any_profile_leaves_pcie(tmp_path: Path) -> None:
    """4 links of an RTX A6000 carry 56 GB/s, not three eighths of an SXM GPU's worth."""
    path = tmp_path / "pair.txt"
    path.write_text(matrix("a100_pcie_bridge").replace("NV12", "NV4"), encoding="utf-8")
    found = describe_node(path, told=Told(gpu="rtx-a6000"))
    assert found.node.intra_link.value == "pcie4"
    assert any("--intra-link" in note for note in found.notes)


@pytest.mark.parametrize(
    ("text", "gpu", "why"),
    [
        ("GPU 0: NVIDIA H100 (UUID: GPU-1)\n", "l4", "no matrix of `nvidia-smi topo -m`"),
        ("\n".join(matrix("hgx_h100").splitlines()[:5]), "h100-sxm5-80gb", "GPU4: its row is miss"),
        (
            matrix("gb200_tray").partition("\nGPU2")[0] + "\nGPU2 NV18\nGPU3 NV18",
            "gb200",
            "GPU2: its row has",
        ),
        (matrix("gb200_tray").replace("NV18", "fast"), "gb200", "'fast' is no path"),
        (matrix("gb200_tray"), "", "give --gpu"),
        (
            matrix("rtx_3090_pairs").replace("3090 (UUID: GPU-00000003", "4090 (UUID: GPU-3"),
            "",
            "kinds",
        ),
        (matrix("gb200_tray"), "gb2000", "gpu 'gb2000' is not known"),
    ],
)
def test_what_is_no_whole_matrix_is_refused(text: str, gpu: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "topo.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=why):
        describe_node(path, told=Told(gpu=gpu))


def test_colours_and_tabs_change_nothing() -> None:
    plain = matrix("hgx_h100").replace("\x1b[4m", "").replace("\x1b[0m", "").replace("\t", "   ")
    assert parse_topology(plain) == parse_topology(matrix("hgx_h100"))


def zeroplan(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "zeroplan", *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def test_the_next_estimate_runs_on_the_new_node(tmp_path: Path) -> None:
    own = tmp_path / "own"
    told = ("--gpu", "h100-sxm5-80gb", "--nic-gbps", "200", "--output", str(own))
    asked = ("calibrate", "--topology", str(MATRICES / "four_h100_mesh.txt"), *told)
    done = zeroplan(*asked)
    target = own / "nodes" / "4x-h100-sxm5-80gb.toml"
    assert (done.returncode, done.stderr) == (
        0,
        f"made the folder {target.parent}\nwrote {target}\n",
    )
    assert list(faults(load_catalogue(own))) == []
    step = ("estimate", "-m", "8b", "-n", "32", "--strategy", "zero3", "--json")
    usual = json.loads(zeroplan(*step, "--gpus-per-node", "4").stdout)
    ours = ("--node", "4x-h100-sxm5-80gb", "--profiles", str(own))
    found = json.loads(zeroplan(*step, *ours).stdout)
    assert found["inputs"]["cluster"]["gpus_per_node"] == 4
    seconds = [each["estimates"][0]["time"]["communication_seconds"] for each in (usual, found)]
    assert seconds[1] > 1.5 * seconds[0]  # half the rate of the usual NICs
    again = zeroplan(*asked)
    assert again.returncode == 2
    assert "there is such a file" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        ((), 2, "name what was measured"),
        (("--topology", "no.txt", "--gpu", "l4"), 3, "no.txt: No such file"),
        (("--topology", "no.txt", "--nic-gbps", "fast"), 2, "--nic-gbps 'fast'"),
        (
            ("--topology", "a", "--collectives", "b"),
            2,
            "RECORD.json, or --collectives FILE, or --topology FILE",
        ),
    ],
)
def test_a_command_that_cannot_be_answered_says_why(
    arguments: tuple[str, ...], code: int, why: str
) -> None:
    done = zeroplan("calibrate", *arguments)
    assert done.returncode == code
    assert why in done.stderr
    assert "Traceback" not in done.stderr
