"""What mkdocs is told beyond mkdocs.yml: pages made at each build, and files that pages link to.

The README is the site's first page. Links out of `docs` lead to copies of those files in the site,
so that it opens from a folder and needs no network.
"""

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.exceptions import PluginError
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File
from pictures import drawn, shown, words
from reference import pages

LOG: Final = get_plugin_logger("zeroplan")
HOME: Final = Path(__file__).parents[1]
COPIES: Final = "repository"
"""Folder of the site for files of the repository."""
BESIDE: Final = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "hardware_profiles/CHANGELOG.md": "profiles-changelog.md",
    "hardware_profiles": "reference/gpus.md",
}
"""Places on the site of what lies beside `docs`."""
LINK: Final = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)((?:#[^)\s]*)?)\)")
"""A link to another file, and its anchor."""
FETCHED: Final = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*?=[\"']?(?:https?:)?//[^>]*>"
)
"""What a browser would get from elsewhere."""


def on_files(files: Any, config: Any) -> None:
    """Add pages that are made or lie beside `docs`, files to which pages link, fresh pictures."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    for source, path in BESIDE.items():
        if source.endswith(".md"):
            text = (HOME / source).read_text(encoding="utf-8")
            files.append(File.generated(config, path, content=text))
    add_linked(files, config)
    draw(files, config)


def add_linked(files: Any, config: Any) -> None:
    """Add the files of the repository to which pages link."""
    for path in [each for each in files.src_uris if source_of(each)]:
        for target, _ in LINK.findall(files.src_uris[path].content_string):
            inside = inside_repository(path, target)
            copy = place_of(inside)
            if copy not in files.src_uris and (HOME / inside).is_file():
                content = (HOME / inside).read_bytes()
                files.append(File.generated(config, copy, content=content))


def draw(files: Any, config: Any) -> None:
    """Draw the pictures anew; a page that tells other figures is stale."""
    for page, found in shown():
        picture = drawn(found["arguments"])
        if words(picture) != found["alt"]:
            LOG.warning("%s: %s is stale: python docs/pictures.py", page.name, found["path"])
        place = found["path"].removeprefix("docs/")
        if place in files.src_uris:
            files.remove(files.src_uris[place])
        files.append(File.generated(config, place, content=picture))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn the links of the repository into those of the site."""
    path = page.file.src_uri
    if not source_of(path):
        return markdown

    def turned(found: re.Match[str]) -> str:
        place = place_of(inside_repository(path, found[1]))
        return f"]({posixpath.relpath(place, posixpath.dirname(path))}{found[2]})"

    return LINK.sub(turned, markdown)


def on_post_page(output: str, page: Any, **_: Any) -> None:
    """Refuse a page that fetches something from a network when it is read."""
    fetched = FETCHED.search(output)
    if fetched:
        raise PluginError(f"{page.file.src_uri} fetches {fetched[0]!r}")


def source_of(path: str) -> str:
    """Return which file of the repository a page of the site is; none if it was made."""
    lies_beside = {place: source for source, place in BESIDE.items()}
    source = lies_beside.get(path, f"docs/{path}")
    return source if path.endswith(".md") and (HOME / source).is_file() else ""


def inside_repository(path: str, target: str) -> str:
    """Return where a page's link leads, as seen from the top of the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source_of(path)), target))


def place_of(inside: str) -> str:
    """Return where a file of the repository lies on the site."""
    if inside in BESIDE:
        return BESIDE[inside]
    return inside.removeprefix("docs/") if inside.startswith("docs/") else f"{COPIES}/{inside}"
