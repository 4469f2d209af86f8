"""Write the page of public reports from the file that the tests read.

python docs/cases.py            rewrite docs/cases.md
python docs/cases.py --check    only say whether it is stale
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

HOME: Final = Path(__file__).parents[1]
PAGE: Final = HOME / "docs" / "cases.md"
REPORTS: Final = HOME / "tests" / "cases" / "reports.toml"

PARTS: Final = {
    "pytorch": "Memory under DDP, FSDP or on one GPU",
    "deepspeed": "Memory under DeepSpeed",
    "": "Counts, shapes, times, files of other tools, questions",
}

WORDS: Final = {
    "tensor": "an allocation of {}",
    "figure": "`{}`",
    "verdict": "verdict `{}`",
    "moment": "peak in the {}",
    "exceeds": "`{}` exceeds the GPU by itself",
    "below": "`{}` does not exceed the GPU",
    "cause": "slow because of {}",
    "fix": "made to fit by `{}`",
    "refused": "refused",
}

Report = dict[str, Any]


def page(reports: list[Report]) -> str:
    """Return the page."""
    parts = [
        part(title, [each for each in reports if each.get("memory", "") == kind])
        for kind, title in PARTS.items()
    ]
    return "\n".join((INTRODUCTION, *parts))


INTRODUCTION: Final = """# Public reports

What people reported about memory, step time and configuration files, and what zeroplan says to it.
A report is **decided** where a test asks zeroplan the same question and holds the answer against
the report's figure or verdict, **in part** where something of it is left, and **open** where no
test holds it; the reason stands beside. Questions, figures and tolerances are in
[tests/cases/reports.toml](../tests/cases/reports.toml).

This page is written by `python docs/cases.py`.
"""


def part(title: str, reports: list[Report]) -> str:
    """Return a heading, a count and a table."""
    held = sum("check" in each for each in reports)
    whole = sum(each["outcome"] == "decided" for each in reports)
    rows = [
        f"| {each['id']} | {cited(each['source'])} | {each['about']} | {each['outcome']} | {held_by(each)} |"
        for each in reports
    ]
    return "\n".join(
        (
            f"## {title}",
            "",
            f"{held} of {len(reports)} are held by tests, {whole} of them whole.",
            "",
            "| id | report | what was run | outcome | held by, or why not |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
        )
    )


def cited(source: str) -> str:
    """Link an issue on GitHub; anything else stands as it is."""
    return re.sub(r"^([\w.-]+/[\w.-]+)#(\d+)", r"[\1#\2](https://github.com/\1/issues/\2)", source)


def held_by(report: Report) -> str:
    """List what the checks hold, then what is left."""
    told = [what(check) for check in report.get("check", ())]
    return "; ".join((*dict.fromkeys(told), *([report["reason"]] if "reason" in report else [])))


def what(check: Report) -> str:
    """Tell one check in a few words."""
    kind = next(kind for kind in WORDS if kind in check)
    value = check[kind]
    told = WORDS[kind].format(" or ".join(value) if isinstance(value, list) else value)
    for bound in ("is", "under", "over"):
        if bound in check:
            of = " (a difference)" * ("minus" in check) + " (a ratio)" * ("ratio" in check)
            told += f"{of} {bound} {check[bound]}"
    told += f", advice `{check['advice']}`" if "advice" in check else ""
    return told + (f" ± {100 * check['within']:.2g} %" if "within" in check else "")


def main() -> None:
    """Rewrite the page, or tell that it is stale and exit with 1."""
    fresh = page(tomllib.loads(REPORTS.read_text(encoding="utf-8"))["report"])
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == fresh:
        return
    if "--check" in sys.argv:
        print(PAGE.relative_to(HOME), "is stale")
        sys.exit(1)
    PAGE.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()
