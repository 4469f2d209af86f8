"""The page as a whole: one file without a network, for screens, paper and screen readers."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Final

from zeroplan import __version__
from zeroplan.estimation.record import Estimate
from zeroplan.hardware import load_catalogue
from zeroplan.report.page import sections
from zeroplan.report.page.fit import chosen
from zeroplan.report.page.grid import Grid
from zeroplan.report.page.links import links
from zeroplan.report.page.parts import paragraphs
from zeroplan.report.page.short import beside, short
from zeroplan.report.page.sure import sure
from zeroplan.report.page.what_if import what_if
from zeroplan.report.words import verdicts
from zeroplan.spec.models import load_architecture
from zeroplan.spec.run import Run
from zeroplan.spec.toml import to_toml

__all__ = ["page_html"]

DATA: Final = Path(__file__).parents[2] / "data" / "page"

PAGE: Final = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="generator" content="zeroplan $version">
<title>$title</title>
<style>
$css</style>
</head>
<body>
<a class="skip" href="#main">Skip to the answer</a>
<header>
<h1>$title</h1>
<p>$question</p>
<nav aria-label="Parts of this page"><ul>$contents</ul></nav>
</header>
<main id="main">
$parts
</main>
<footer><p>Made by zeroplan $version. Predicted, not measured.</p></footer>
<script type="application/json" id="grid">$grid</script>
<script>
$script</script>
</body>
</html>
""")


def page_html(
    answer: Estimate,
    asked: Run,
    grid: Grid,
    commands: Iterable[str],
    profiles: Path | None = None,
) -> str:
    """Return the page.

    Parameters
    ----------
    answer
        The answer to the question.
    asked
        The question before its defaults were filled in.
    grid
        The answers around it.
    commands
        Lines that a shell runs to get all this again.
    profiles
        Folder whose hardware profiles come before the shipped ones.

    """
    catalogue, cluster = load_catalogue(profiles), answer.inputs.cluster
    gpu, link = catalogue.gpu(cluster.gpu or ""), catalogue.link(cluster.link or "")
    model = load_architecture(answer.inputs.model.source).name
    best = chosen(answer)
    outcome = best.verdict if best.fits else "does_not_fit"
    said = f'<p class="verdict {outcome}">{escape(_headline(answer, model))}</p>'
    parts = {
        "Verdict": said + paragraphs((*verdicts(answer), *beside(answer))) + short(answer, grid),
        "Memory": sections.memory(answer),
        "Time": sections.time(answer),
        "Link": links(grid),
        "What if": "<noscript><p>This part needs JavaScript.</p></noscript>"
        + what_if(answer, grid),
        "How sure": sure(answer, profiles),
        "Assumptions": sections.assumed(answer, asked, profiles),
        "Reproduce": sections.reproduced(commands, to_toml(answer.inputs)),
    }
    names = {title: title.lower().replace(" ", "-") for title in parts}
    return PAGE.substitute(
        version=__version__,
        title=escape(f"{model} on {cluster.gpus:,} x {gpu.name}"),
        question=escape(sections.question(answer, model, gpu.name, link.name)),
        css=(DATA / "page.css").read_text(encoding="utf-8"),
        script=(DATA / "page.js").read_text(encoding="utf-8"),
        contents="".join(f'<li><a href="#{names[each]}">{each}</a></li>' for each in parts),
        parts="\n".join(
            f'<section aria-labelledby="{names[each]}"><h2 id="{names[each]}">{each}</h2>{body}'
            "</section>"
            for each, body in parts.items()
        ),
        grid=grid.to_json(),
    )


def _headline(answer: Estimate, model: str) -> str:
    """Return the verdict in one sentence."""
    where = f"on these {answer.inputs.cluster.gpus:,} GPUs"
    held = [each for each in answer.estimates if each.fits]
    safe = [each.strategy for each in held if each.verdict == "fits"]
    if safe:
        return f"Yes: it fits {where} with {_listed(safe)}."
    if held:
        named = _listed([each.strategy for each in held])
        return f"Perhaps: {where} the limit lies within the uncertainty of {named}."
    return f"No: {model} does not fit {where}."


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
