"""Put under each command that the documentation shows what the command prints today.

    python docs/console.py            rewrite README.md and docs/*.md
    python docs/console.py --check    only say which of them are stale

A block of `console` begins with the command. One that ends with an ellipsis shows the answer alone,
without the notes, defaults and assumptions below it; of `explain`, what lives at the peak.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

HOME: Final = Path(__file__).parents[1]
BLOCK: Final = re.compile(
    r"(?<=^```console\n)\$ zeroplan (?P<arguments>[^\n]+)\n(?P<shown>.*?)(?=^```$)",
    re.MULTILINE | re.DOTALL,
)
COLUMNS: Final = "100"
ENDS: Final = re.compile(r"\n(?:Notes|The next moments)\n")
"""The first heading behind the answer."""


def printed(arguments: str) -> str:
    """Return what `zeroplan` prints on a terminal of 100 columns."""
    command = [sys.executable, "-c", "from zeroplan.cli import main; main()"]
    environment = {**os.environ, "COLUMNS": COLUMNS, "NO_COLOR": "1"}
    done = subprocess.run(
        [*command, *shlex.split(arguments)],
        env=environment,
        cwd=HOME,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def refreshed(page: str) -> str:
    """Return a page with every block as it should be."""

    def block(found: re.Match[str]) -> str:
        output = printed(found["arguments"])
        if found["shown"].endswith("…\n"):
            output = ENDS.split(output, maxsplit=1)[0] + "\n…\n"
        return f"$ zeroplan {found['arguments']}\n{output}"

    return BLOCK.sub(block, page)


def main() -> None:
    """Rewrite the pages, or tell which are stale and exit with 1."""
    check = "--check" in sys.argv
    stale = False
    for file in (HOME / "README.md", *sorted(HOME.glob("docs/*.md"))):
        page = file.read_text(encoding="utf-8")
        fresh = refreshed(page)
        if fresh == page:
            continue
        stale = True
        print(file.relative_to(HOME), "is stale" if check else "rewritten")
        if not check:
            file.write_text(fresh, encoding="utf-8")
    sys.exit(check and stale)


if __name__ == "__main__":
    main()
