"""The page of a test file's `answer` to its `KEYS`, with a what-if over its `VARIED`."""

from typing import Any

import pytest

from zeroplan import load_spec
from zeroplan.estimation.record import Estimate
from zeroplan.report.page.document import page_html
from zeroplan.report.page.grid import Grid, grid
from zeroplan.spec.toml import by_dotted_key


@pytest.fixture(scope="module")
def keys(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.module.KEYS
    return found


@pytest.fixture(scope="module")
def around(request: pytest.FixtureRequest, keys: dict[str, Any], answer: Estimate) -> Grid:
    return grid(answer, by_dotted_key(keys), request.module.VARIED)


@pytest.fixture(scope="module")
def page(keys: dict[str, Any], answer: Estimate, around: Grid) -> str:
    return page_html(answer, load_spec(**keys), around, ["zeroplan estimate --model 8b"])
