"""Tables of a page between `<!-- name -->` and `<!-- end -->`."""

import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Final

BLOCK: Final = re.compile(r"<!-- (?P<name>\w+) -->\n(?P<table>.*?)<!-- end -->", re.DOTALL)


def table(heads: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    """Return a table in markdown."""
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def told(text: str) -> str:
    """Return a sentence of the source as a cell of a table."""
    return " ".join(escape(text, quote=False).replace("|", "\\|").split())


def percent(fraction: float, *, sign: bool = False) -> str:
    """Return a fraction in percent."""
    return f"{100 * fraction:{'+' if sign else ''}.1f}"


def filled(page: str, made: Mapping[str, str]) -> str:
    """Return a page with the tables that were made; the others stay."""

    def block(found: re.Match[str]) -> str:
        name = found["name"]
        return f"<!-- {name} -->\n{made[name]}<!-- end -->" if name in made else found[0]

    return BLOCK.sub(block, page)


def column(page: str, name: str, head: str) -> dict[str, str]:
    """Return a column of a page's table by what stands in the first one."""
    (text,) = (found["table"] for found in BLOCK.finditer(page) if found["name"] == name)
    lines = [line.strip("| ").split(" | ") for line in text.splitlines()]
    place = lines[0].index(head)
    return {cells[0]: cells[place] for cells in lines[2:]}
