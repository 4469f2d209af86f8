"""Draw the pictures that the documentation shows, each by the command in the line above it.

    python docs/pictures.py            draw docs/pictures/*.svg, write what they say into the pages
    python docs/pictures.py --check    only say which are stale: by their words, not by their bytes

In a page stands `<!-- zeroplan plot KIND ... -->`, and below it the picture. Its alternative text is
the chart's own finding and the figures behind it, which is what must not be out of date; how
matplotlib draws them may change from version to version.
"""

import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Final

HOME: Final = Path(__file__).parents[1]
FOLDER: Final = HOME / "docs" / "pictures"
PAGES: Final = (HOME / "README.md", *sorted(HOME.glob("docs/*.md")))
PICTURE: Final = re.compile(
    r"^<!-- zeroplan (?P<arguments>plot .+?) -->\n!\[(?P<alt>.*?)\]\((?P<path>\S+)\)$",
    re.MULTILINE,
)


def shown() -> Iterator[tuple[Path, re.Match[str]]]:
    """Yield each picture of a page, as its command, words and path."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        yield from ((page, found) for found in PICTURE.finditer(text))


def drawn(arguments: str) -> str:
    """Return the SVG that `zeroplan plot` draws."""
    command = [sys.executable, "-c", "from zeroplan.cli import main; main()"]
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "picture.svg"
        subprocess.run(
            [*command, *shlex.split(arguments), "--output", str(picture)],
            cwd=HOME,
            capture_output=True,
            check=True,
        )
        return picture.read_text(encoding="utf-8")


def words(svg: str) -> str:
    """Return a picture's title and description as one text."""
    title, described = (
        re.search(rf"<{tag}>(.*?)</{tag}>", svg, re.DOTALL) for tag in ("title", "desc")
    )
    if title is None or described is None:
        return ""
    return unescape(f"{title[1]}. {described[1]}")


def main() -> None:
    """Draw, or tell what is stale and exit with 1."""
    check = "--check" in sys.argv
    stale = []
    for page, found in list(shown()):
        path = page.parent / found["path"]
        svg = drawn(found["arguments"])
        told = words(svg)
        before = words(path.read_text(encoding="utf-8")) if path.exists() else ""
        stale += [f"{page.name}: {found['path']}"] * (not told == before == found["alt"])
        if not check:
            FOLDER.mkdir(exist_ok=True)
            path.write_text(svg, encoding="utf-8")
            fresh = found[0].replace(f"![{found['alt']}]", f"![{told}]")
            text = page.read_text(encoding="utf-8").replace(found[0], fresh)
            page.write_text(text, encoding="utf-8")
    for name in stale:
        print(name, "is stale" if check else "drawn")
    sys.exit(check and bool(stale))


if __name__ == "__main__":
    main()
