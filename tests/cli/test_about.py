"""`zeroplan --version` and `zeroplan --cite`."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from zeroplan import __version__
from zeroplan.cli.about import bibtex
from zeroplan.hardware import load_catalogue

HOME = Path(__file__).parents[2]
HEAVY = "{'matplotlib', 'numpy', 'pandas', 'pydantic', 'torch', 'yaml'}"
LIGHT = (
    "import sys\nfrom zeroplan.cli import main\ntry: main()\n"
    f"except SystemExit: print(set(sys.modules) & {HEAVY}, file=sys.stderr); raise"
)


def _run(*arguments: str, code: str = LIGHT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_version_is_followed_by_that_of_the_hardware_profiles() -> None:
    done = _run("--version")
    first, second = done.stdout.splitlines()
    assert first == f"zeroplan {__version__}"
    changes = (HOME / "hardware_profiles" / "CHANGELOG.md").read_text()
    day = next(line for line in changes.splitlines() if line.startswith("## "))[-10:]
    catalogue = load_catalogue()
    ids = (catalogue.gpu_ids(), catalogue.link_ids(), catalogue.node_ids())
    gpus, links, nodes = map(len, ids)
    told = f"{gpus} GPUs, {links} links, {nodes} nodes"
    assert second == f"hardware profiles of {day}, schema version 1: {told}"
    assert done.stderr == "set()\n"  # nothing heavy is loaded


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)], ids=["before", "behind"])
def test_profiles_of_ones_own_are_counted(order: slice, tmp_path: Path) -> None:
    (tmp_path / "gpus").mkdir()
    (tmp_path / "gpus" / "mine.toml").touch()
    done = _run(*[f"--profiles={tmp_path}", "--version"][order])
    assert (
        done.stdout.splitlines()[2] == f"before them those of {tmp_path}: 1 GPU, 0 links, 0 nodes"
    )


def test_a_folder_of_profiles_may_be_named_before_the_command(tmp_path: Path) -> None:
    (tmp_path / "gpus").mkdir()
    text = (HOME / "hardware_profiles" / "gpus" / "h100-sxm5-80gb.toml").read_text()
    (tmp_path / "gpus" / "mine.toml").write_text(text.replace("h100-sxm5-80gb", "mine"))
    done = _run(f"--profiles={tmp_path}", "hardware", "show", "mine")
    assert done.stdout.startswith("mine, revision ")
    missing = _run("--profiles", str(tmp_path / "absent"), "--version")
    assert (missing.returncode, missing.stdout) == (3, "")
    assert "there is no such folder" in missing.stderr


def test_the_citation_is_that_of_the_file() -> None:
    shown = _run("--cite").stdout
    cff = yaml.safe_load((HOME / "CITATION.cff").read_text())
    assert shown.startswith("@software{zeroplan,\n")
    assert f"  title = {{{{{cff['title']}}}}},\n" in shown
    assert f"  author = {{{{{cff['authors'][0]['name']}}}}},\n" in shown
    assert f"  version = {{{__version__}}},\n" in shown
    assert shown.count("{") == shown.count("}")


def test_people_and_a_date_become_bibtex_too() -> None:
    entry = bibtex(
        {
            "title": "a & b_c: 100%",
            "authors": [
                {"family-names": "Turing", "given-names": "Alan"},
                {"family-names": "Ångström", "given-names": "A. J."},
            ],
            "version": "2",
            "license": "MIT",
            "date-released": "2026-12-01",
            "doi": "10.1/x_y",
        }
    )
    assert "  author = {Turing, Alan and Ångström, A. J.},\n" in entry
    assert r"  title = {{a \& b\_c: 100\%}}," in entry
    assert "  year = {2026},\n" in entry
    assert "  doi = {10.1/x_y},\n" in entry
