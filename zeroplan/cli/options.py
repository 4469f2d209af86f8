"""Options and exit codes that several commands share."""

from typing import Annotated, Final

import typer

from zeroplan.errors import UsageError

__all__ = ["NOTHING_FITS", "OUTPUT", "OUTSIDE", "AsJson", "ProfilesFolder", "count"]

NOTHING_FITS: Final = 4
"""Exit code of an answer in which no estimate fits."""

OUTSIDE: Final = 5
"""Exit code of an answer that is outside the stated tolerance."""

OUTPUT: Final = "Output"
"""Panel of the help page."""

ProfilesFolder = Annotated[
    str | None,
    typer.Option(
        "--profiles",
        metavar="DIR",
        help="Folder whose hardware profiles come before the shipped ones.",
        rich_help_panel="Cluster",
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document.", rich_help_panel=OUTPUT)
]


def count(option: str, text: str) -> int:
    """Return a whole number of 1 or more."""
    if not (text.isdecimal() and int(text) > 0):
        raise UsageError(f"{option} {text!r}: use a whole number of 1 or more.")
    return int(text)
