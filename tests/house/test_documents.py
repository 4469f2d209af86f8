"""The documentation keeps what it promises: its commands, its examples, its links."""

import doctest
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import zeroplan
from zeroplan import cli
from zeroplan.errors import ZeroplanError
from zeroplan.spec.toml import load_spec

HOME = Path(__file__).parents[2]
README = HOME / "README.md"
PAGES = [*sorted(HOME.glob("*.md")), *sorted(HOME.glob("docs/*.md"))]
EXAMPLES = [path for path in sorted(HOME.glob("zeroplan/**/*.py")) if ">>> " in path.read_text()]


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def _command(marker: str) -> str:
    found = re.search(
        rf"^<!-- {marker} -->\n```sh\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL
    )
    assert found
    return found[1]


def test_what_is_shown_of_the_command_line_is_what_it_prints_today() -> None:
    """`python docs/console.py` rewrites what is stale."""
    check = [sys.executable, str(HOME / "docs" / "console.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""


def test_the_pictures_say_what_the_charts_say_today() -> None:
    """`python docs/pictures.py` draws anew what is stale."""
    check = [sys.executable, str(HOME / "docs" / "pictures.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""


def test_the_readme_shows_the_command_that_it_tells_to_run() -> None:
    shown = re.findall(r"^\$ (zeroplan .+)$", README.read_text(), re.MULTILINE)
    assert f".venv/bin/{shown[0]}\n" in _command("run")


@pytest.mark.parametrize("marker", ["run", "test"])
def test_each_command_of_the_readme_is_complete_in_itself(marker: str) -> None:
    first, second, third = _command(marker).splitlines()
    assert first == "python3 -m venv .venv"
    assert second.startswith(".venv/bin/pip install ")
    assert third.startswith(".venv/bin/")


def test_the_pages_hold_their_python_to_what_it_returns() -> None:
    results = [doctest.testfile(str(page), module_relative=False) for page in PAGES]
    assert sum(result.attempted for result in results) > 0
    assert sum(result.failed for result in results) == 0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_of_the_docstrings_hold(path: Path) -> None:
    name = ".".join(path.relative_to(HOME).with_suffix("").parts)
    result = doctest.testmod(import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


def test_the_spec_file_that_is_shown_is_read(tmp_path: Path) -> None:
    text = _blocks(HOME / "docs" / "editor.md", "toml")[0]
    file = tmp_path / "run.toml"
    file.write_text(text)
    asked = tomllib.loads(text)
    assert load_spec(file).cluster.gpus == asked["cluster"]["gpus"]
    assert load_spec(file).sharding.strategy == asked["sharding"]["strategy"]


def test_the_page_of_answers_lists_the_exit_codes_of_the_help_page() -> None:
    page = (HOME / "docs" / "answers.md").read_text()
    table = set(re.findall(r"^\| (\d+) \|", page, re.MULTILINE))
    assert table == set(re.findall(r"\b\d+\b", cli.EXIT_CODES))
    assert {str(error.exit_code) for error in ZeroplanError.__subclasses__()} <= table


def test_the_rooms_are_told_in_the_order_of_the_import_contract() -> None:
    project = tomllib.loads((HOME / "pyproject.toml").read_text())
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    assert f"\n{' < '.join(reversed(layers))}\n" in (HOME / "CONTRIBUTING.md").read_text()


def test_every_link_leads_to_a_file() -> None:
    links = [
        (page.parent / target, f"{page.name}: {target}")
        for page in PAGES
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    ]
    assert links
    assert [told for path, told in links if not path.exists()] == []


def test_one_version_is_told_everywhere() -> None:
    assert version("zeroplan") == zeroplan.__version__
    assert f"version: {zeroplan.__version__}\n" in (HOME / "CITATION.cff").read_text()
    assert f"## {zeroplan.__version__}" in (HOME / "CHANGELOG.md").read_text()


def test_no_page_names_a_place_on_somebodys_machine() -> None:
    private = re.compile(r"(?<![\w.])/(?:home|root|tmp|var|opt|work|Users|mnt)/")
    files = [*PAGES, HOME / "pyproject.toml", HOME / "CITATION.cff", *HOME.glob(".ci/*")]
    assert [str(file) for file in files if private.search(file.read_text())] == []
