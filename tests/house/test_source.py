"""The source keeps the house rules that no linter knows."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from zeroplan.sharding.strategies import STRATEGIES

PACKAGE = Path(__file__).parents[2] / "zeroplan"
TREES = {
    path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text())
    for path in sorted(PACKAGE.rglob("*.py"))
}
STAGES = {name for name in STRATEGIES if name.startswith("zero")}
MODULE_LINES = 300
BODY_LINES = 40


def _lines(pattern: str, *, outside: str) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()}"
        for name in TREES
        if not name.startswith(outside)
        for number, line in enumerate((PACKAGE / name).read_text().splitlines(), 1)
        if re.search(pattern, line)
    ]


def _comparisons_with_a_stage() -> Iterator[str]:
    for name, tree in TREES.items():
        if name.startswith("sharding/"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                inner = (part for side in (node.left, *node.comparators) for part in ast.walk(side))
                if any(isinstance(part, ast.Constant) and part.value in STAGES for part in inner):
                    yield f"{name}:{node.lineno}"


def _bodies() -> Iterator[tuple[str, int]]:
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                told = ast.get_docstring(node) is not None
                code = node.body[1:] if told else node.body
                lines = code[-1].end_lineno - code[0].lineno + 1 if code else 0  # type: ignore[operator]  # parsed code has line numbers
                yield f"{name}:{node.lineno} {node.name}", lines


def test_only_the_sharding_room_asks_for_a_stage() -> None:
    assert STAGES
    assert list(_comparisons_with_a_stage()) == []
    assert _lines(r"\bstage *(?:[<>=]=?|in\b)", outside="sharding/") == []


def test_only_the_units_module_scales() -> None:
    assert _lines(r"\b1e9\b|\b10 *\*\* *9\b|\b1024 *\*\*", outside="units.py") == []


def test_a_module_is_short_enough_to_be_read_at_once() -> None:
    lengths = {name: len((PACKAGE / name).read_text().splitlines()) for name in TREES}
    assert {name: lines for name, lines in lengths.items() if lines > MODULE_LINES} == {}


def test_a_function_fits_on_a_screen() -> None:
    bodies = dict(_bodies())
    assert bodies
    assert {name: lines for name, lines in bodies.items() if lines > BODY_LINES} == {}
