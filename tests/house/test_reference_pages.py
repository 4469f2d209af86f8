"""The reference of the site names everything there is; mkdocs is not needed to make it."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

import zeroplan
from zeroplan.cli.light import COMMANDS
from zeroplan.hardware import load_catalogue
from zeroplan.spec.reading import keys

DOCS: Final = Path(__file__).parents[2] / "docs"
MKDOCS: Final = DOCS.parent / "mkdocs.yml"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    sys.path.insert(0, str(DOCS))
    try:
        made: dict[str, str] = import_module("reference").pages()
    finally:
        sys.path.remove(str(DOCS))
    return made


def test_every_command_has_its_flags(pages: dict[str, str]) -> None:
    page = pages["reference/commands.md"]
    assert [name for name in COMMANDS if f"\n## zeroplan {name}\n" not in page] == []
    assert "| `--tokens` | `N` | Tokens to train on" in page
    assert "\n### zeroplan hardware diff\n" in page


def test_every_key_has_its_default_and_its_sentence(pages: dict[str, str]) -> None:
    page = pages["reference/keys.md"]
    names = [dotted.rpartition(".")[2] for dotted in keys()]
    assert [name for name in names if f"\n| `{name}`" not in page] == []
    line = next(line for line in page.splitlines() if line.startswith("| `micro_batch_size`"))
    assert "| `1` | Sequences per GPU per micro-step. [count] |" in line


def test_every_figure_of_every_profile_has_its_kind_and_a_source_that_is_listed(
    pages: dict[str, str],
) -> None:
    catalogue = load_catalogue()
    for kind, ids in {
        "gpus": catalogue.gpu_ids(),
        "links": catalogue.link_ids(),
        "nodes": catalogue.node_ids(),
    }.items():
        page = pages[f"reference/{kind}.md"]
        assert [name for name in ids if f"\n## {name}\n" not in page] == []
    usable = next(
        line
        for line in pages["reference/gpus.md"].partition("## h100-sxm5-80gb")[2].splitlines()
        if line.startswith("| `usable_bytes`")
    )
    assert "| 79.1&nbsp;GiB | measured | [torch-capacity-messages](sources.md#" in usable
    listed = pages["reference/sources.md"]
    assert [key for key in catalogue.sources() if f"\n## {key}\n" not in listed] == []


def test_every_public_name_and_every_field_of_an_answer_is_there(pages: dict[str, str]) -> None:
    page = pages["reference/python.md"]
    assert [name for name in zeroplan.__all__ if f"\n::: zeroplan.{name}\n" not in page] == []
    assert "| `peak_allocated_bytes` | `int` |" in page


def test_every_page_is_in_the_menu(pages: dict[str, str]) -> None:
    menu = MKDOCS.read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = [*pages, *(path.name for path in DOCS.glob("*.md"))]
    assert [name for name in named if f": {name}\n" not in menu] == []
