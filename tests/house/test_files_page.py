"""docs/files.md lists the keys of the tables that read them."""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_trainers_files_is_that_of_the_tables() -> None:
    """`python docs/files.py` rewrites what is stale."""
    check = [sys.executable, str(DOCS / "files.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
