"""The notebooks are essays: numbered, without outputs, on the public interface alone.

`pytest --nbmake notebooks` runs them.
"""

import ast
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def _cells(path: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
    return cells


def test_they_are_numbered() -> None:
    assert [path.stem[:3] for path in NOTEBOOKS] == [f"{n:02}_" for n in range(1, 7)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_opens_with_its_title_and_holds_no_output(path: Path) -> None:
    first, *others = _cells(path)
    assert first["cell_type"] == "markdown"
    assert first["source"][0].startswith("# ")
    code = [cell for cell in others if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_imports_public_names_only(path: Path) -> None:
    code = (cell["source"] for cell in _cells(path) if cell["cell_type"] == "code")
    imports = [
        node
        for source in code
        for node in ast.walk(ast.parse("".join(source)))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("zeroplan")
    ]
    assert imports
    for node in imports:
        public = import_module(node.module or "").__all__
        assert {alias.name for alias in node.names} <= set(public)
