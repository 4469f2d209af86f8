"""`zeroplan hardware` lists, shows and checks the profiles; the answer is on stdout."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from zeroplan.cli.hardware import app
from zeroplan.errors import SpecError
from zeroplan.hardware import load_catalogue
from zeroplan.hardware.catalogue import PROFILES_VARIABLE

CATALOGUE = load_catalogue()
ALL_IDS = (*CATALOGUE.gpu_ids(), *CATALOGUE.link_ids(), *CATALOGUE.node_ids())


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.delenv(PROFILES_VARIABLE, raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    return CliRunner()


def test_list_names_every_profile_whole_when_piped(runner: CliRunner) -> None:
    result = runner.invoke(app, ["list"])
    assert result.exit_code == 0
    assert set(ALL_IDS) <= set(result.stdout.split())


def test_list_fits_into_80_columns_with_ids_whole(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = runner.invoke(app, ["list"]).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert set(ALL_IDS) <= {line.split()[0] for line in lines if line.strip()}


def test_list_shows_every_figure_whole_in_80_columns(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = runner.invoke(app, ["list"]).stdout.splitlines()
    shown = {line.split()[0]: line.split()[-1] for line in lines if line.strip()}
    for link in map(CATALOGUE.link, CATALOGUE.link_ids()):
        assert shown[link.id] == (f"{link.fit.points:,}" if link.fit else "-")


@pytest.mark.parametrize("profile_id", ["h100-sxm5-80gb", "ib-ndr400", "dgx-h100"])
def test_show_folds_what_is_longer_than_the_terminal(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, profile_id: str
) -> None:
    whole = runner.invoke(app, ["show", profile_id]).stdout
    monkeypatch.setenv("COLUMNS", "80")
    folded = runner.invoke(app, ["show", profile_id]).stdout
    assert folded.replace("\u2500", "").split() == whole.replace("\u2500", "").split()
    long = [line for line in folded.splitlines() if len(line) > 80]
    assert all("://" in line for line in long)


def test_alone_it_shows_its_help(runner: CliRunner) -> None:
    result = runner.invoke(app, [])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Show every number of one profile" in result.stdout


def test_list_as_json_is_in_si_units(runner: CliRunner) -> None:
    answer = json.loads(runner.invoke(app, ["list", "--json"]).stdout)
    assert [row["id"] for row in answer["nodes"]] == list(CATALOGUE.node_ids())
    h100 = next(row for row in answer["gpus"] if row["id"] == "h100-sxm5-80gb")
    assert h100["dense_16_bit_flop_per_second"] == 989.4e12
    assert h100["node_link"] == "ib-ndr400"


@pytest.mark.parametrize("profile_id", ["h100-sxm5-80gb", "pcie5", "p5-48xlarge"])
def test_show_tells_every_number_with_its_kind_and_source(
    runner: CliRunner, profile_id: str
) -> None:
    answer = json.loads(runner.invoke(app, ["show", profile_id, "--json"]).stdout)
    text = runner.invoke(app, ["show", profile_id]).stdout
    for key, entry in answer.items():
        if isinstance(entry, dict) and "kind" in entry:
            line = next(line for line in text.splitlines() if line.split()[:1] == [key])
            assert entry["kind"] in line
            assert answer["sources"][entry["source"]]["title"] in text


def test_show_scales_for_a_reader(runner: CliRunner) -> None:
    text = runner.invoke(app, ["show", "h100-sxm5-80gb"]).stdout
    words = " ".join(text.split())
    for figure in ("79.1 GiB", "3,350 GB/s", "989.4 TFLOP/s", "32 MiB", "700 W"):
        assert figure in words


def test_show_suggests_an_id(runner: CliRunner) -> None:
    result = runner.invoke(app, ["show", "p5.48xlarge"])
    assert isinstance(result.exception, SpecError)
    assert str(result.exception) == (
        "'p5.48xlarge' is no GPU, link or node. Perhaps you meant 'p5-48xlarge'?"
    )


@pytest.mark.parametrize(("alias", "link"), [("ib", "ib-ndr400"), ("nvlink", "nvlink4")])
def test_show_takes_the_names_that_a_link_takes_and_says_for_which_gpu(
    runner: CliRunner, alias: str, link: str
) -> None:
    named, meant = (runner.invoke(app, ["show", each, "--json"]) for each in (link, alias))
    assert named.stdout == meant.stdout
    assert meant.stderr == f"{alias} is {link} for h100-sxm5-80gb, the default GPU.\n"
    assert named.stderr == ""


def test_check_counts_what_is_good(runner: CliRunner) -> None:
    result = runner.invoke(app, ["check"])
    assert result.exit_code == 0
    counts = f"{len(CATALOGUE.gpu_ids())} GPUs, {len(CATALOGUE.link_ids())} links, "
    assert result.stdout.startswith(counts)
    assert result.stderr == ""


def test_check_tells_each_fault_on_its_own_line(runner: CliRunner, tmp_path: Path) -> None:
    shipped = CATALOGUE.folders[-1]
    for name, old, new in (
        ("gpus/h100-sxm5-80gb.toml", 'value = "nvlink4"', 'value = "nvlink9"'),
        ("links/ib-ndr400.toml", "nics_per_gpu", "nics_per_gup"),
        ("links/nvlink4.toml", "[base_seconds]", "[nics_per_gpu]"),
        ("links/nvlink5.toml", 'scope = "node"', 'scope = "cluster"'),
        ("nodes/dgx-h100.toml", 'value = "h100-sxm5-80gb"', 'value = "h100-sxm5-80gbb"'),
        ("nodes/p5-48xlarge.toml", "price_date", "topology_date"),
        ("nodes/p4d-24xlarge.toml", 'price_date = "2026-11-09"\n', ""),
    ):
        text = (shipped / name).read_text(encoding="utf-8")
        assert old in text
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text.replace(old, new), encoding="utf-8")
    result = runner.invoke(app, ["check", str(tmp_path)])
    assert result.exit_code == 3
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    for beginning in (
        "h100-sxm5-80gb.toml: intra_link: link 'nvlink9' is not known. Perhaps you meant 'nvlink",
        "h100-sxm5-80gb.toml: usual_links.nvlink: link 'nvlink9' is not known.",
        "ib-ndr400.toml: unknown key 'nics_per_gup'. Perhaps you meant 'nics_per_gpu'?",
        "nvlink4.toml: base_seconds is missing.",
        "nvlink5.toml: a link between nodes has nics_per_gpu or nics_per_node, another has none.",
        "b200-sxm.toml: intra_link: 'nvlink5' has scope 'cluster', not 'node'.",
        "dgx-h100.toml: gpu: 'h100-sxm5-80gbb' is not known. Perhaps you meant 'h100-sxm5-80gb'?",
        "p5-48xlarge.toml: unknown key 'topology_date'.",
        "p4d-24xlarge.toml: price_date is missing",
    ):
        assert any(line.startswith(beginning) for line in lines), beginning


def test_check_stops_at_sources_that_cannot_be_read(runner: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "sources.toml").write_text("schema_version = 2\n", encoding="utf-8")
    result = runner.invoke(app, ["check", str(tmp_path)])
    assert result.exit_code == 3
    assert result.stderr == "sources.toml: schema_version is 2; this release reads 1.\n"
