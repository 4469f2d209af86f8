"""How long the page of `zeroplan report` takes to open, and its what-if to answer.

`python benchmarks/page_opening.py [FLAGS OF zeroplan report]` writes a page, opens it in headless
Chromium several times over and prints medians: until the page is loaded with its what-if filled in,
and for one move of each control until the new answer is laid out. Without flags it is the page of
70b on 64 GPUs.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

RUNS = 7
USUAL = ("--model", "70b", "--gpus", "64", "--link", "ib")
PROBE = """
<script>
addEventListener("load", () => {
  const loaded = performance.now();
  const laidOut = () => document.body.getBoundingClientRect().height;
  laidOut();
  const opened = performance.now();
  const moves = [...document.querySelectorAll("#what-if-form [data-key], #what-if-form [type=number]")];
  const times = moves.map((control) => {
    const before = performance.now();
    if (control.type === "range") control.value = Number(control.value) ? 0 : 1;
    else if (control.type === "number") control.value = 2.5;
    else control.selectedIndex = control.options.length - 1;
    control.dispatchEvent(new Event("input", { bubbles: true }));
    laidOut();
    return performance.now() - before;
  });
  const out = document.createElement("pre");
  out.textContent = "timed " + [loaded, opened, times[0], Math.max(...times)].join(" ");
  document.body.append(out);
});
</script>
"""


def opened(chromium: str, page: Path) -> list[float]:
    """Open a page once; return the times of loading, layout, first and slowest update. [ms]"""
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    profile = f"--user-data-dir={page.parent / 'profile'}"
    done = subprocess.run(
        [*command, profile, page.as_uri()], capture_output=True, text=True, check=True
    )
    found = re.search(r"<pre>timed ([\d. ]+)</pre>", done.stdout)
    if found is None:
        sys.exit("the page was not timed")
    return [float(each) for each in found[1].split()]


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("no Chromium (Debian: chromium)")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        command = [sys.executable, "-m", "zeroplan", "report", *(sys.argv[1:] or USUAL)]
        done = subprocess.run([*command, "--output", str(page)], capture_output=True, check=False)
        if not page.is_file():
            sys.exit(done.stderr.decode())
        size = page.stat().st_size
        page.write_text(page.read_text().replace("</body>", f"{PROBE}</body>"))
        runs = [opened(chromium, page) for _ in range(RUNS)]
    loaded, laid_out, first, slowest = (median(each) for each in zip(*runs, strict=True))
    print(f"{size / 1e6:.2f} MB")
    print(f"opened: {loaded:.0f} ms until loaded, {laid_out:.0f} ms until laid out")
    print(f"what-if: {first:.1f} ms for the first move, {slowest:.1f} ms for the slowest")


if __name__ == "__main__":
    main()
