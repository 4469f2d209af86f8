"""What zeroplan is: the versions of it and of its hardware profiles, and how to cite it."""

from pathlib import Path
from typing import Any, Final

from zeroplan import __version__
from zeroplan.hardware.catalogue import load_catalogue
from zeroplan.hardware.profile import SCHEMA_VERSION

__all__ = ["bibtex", "citation_text", "version_text"]

PACKAGE: Final = Path(__file__).parents[1]

ESCAPED: Final = {each: f"\\{each}" for each in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
"""What TeX would not print as it stands."""


def version_text(profiles: str | None) -> str:
    """Return the version, and of which day and how many the hardware profiles are."""
    *own, shipped = load_catalogue(Path(profiles) if profiles else None).parts()
    data = f"hardware profiles of {shipped.changed()}, schema version {SCHEMA_VERSION}"
    lines = [
        f"zeroplan {__version__}",
        f"{data}: {shipped.counted()}",
        *(f"before them those of {part.folders[0]}: {part.counted()}" for part in own),
    ]
    return "".join(f"{line}\n" for line in lines)


def citation_text() -> str:
    """Return the entry of `CITATION.cff` as BibTeX."""
    import yaml  # noqa: PLC0415  # not for the version

    inside = PACKAGE / "data" / "CITATION.cff"
    file = inside if inside.is_file() else PACKAGE.parent / "CITATION.cff"
    return bibtex(yaml.safe_load(file.read_text(encoding="utf-8")))


def bibtex(cff: dict[str, Any]) -> str:
    """Return an entry of a CITATION.cff as BibTeX; what it does not hold is left out."""
    title = str(cff["title"])
    names = [each.get("name") for each in cff["authors"]]
    people = [
        f"{{{_escaped(name)}}}"  # a group's name is one name
        if name
        else f"{_escaped(each['family-names'])}, {_escaped(each['given-names'])}"
        for name, each in zip(names, cff["authors"], strict=True)
    ]
    day = str(cff.get("date-released") or "")
    fields = {
        "author": " and ".join(people),
        "title": f"{{{_escaped(title)}}}",  # twice braced: its small letters stay small
        "version": _escaped(cff["version"]),
        "year": day[:4],
        "license": _escaped(cff["license"]),
        "doi": str(cff.get("doi") or ""),
        "url": str(cff.get("url") or cff.get("repository-code") or ""),
    }
    lines = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items() if value)
    return f"@software{{{title.partition(':')[0]},\n{lines}}}\n"


def _escaped(value: object) -> str:
    return "".join(ESCAPED.get(letter, letter) for letter in str(value))
