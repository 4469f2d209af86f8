"""`zeroplan validate`: one real training step beside the prediction."""

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from zeroplan.cli.flags import SpecCommand, takes_run
from zeroplan.cli.options import OUTSIDE, AsJson, ProfilesFolder
from zeroplan.errors import UsageError
from zeroplan.spec.hints import UnfitError, convert, describe, parse
from zeroplan.spec.run import Run
from zeroplan.spec.words import Range
from zeroplan.validate.record import Backend, ModelClass, Validation

__all__ = ["EXAMPLES", "app"]

EXAMPLES: Final = (
    "zeroplan validate -m llama-3.2-1b -n 8 --strategy fsdp2",
    "zeroplan validate --spec run.toml --backend fake --tolerance 0.001 --json",
    "zeroplan validate -m ./config.json -n 2 --strategy ddp --backend cpu",
    "zeroplan validate -m ./config.json -n 16 --strategy hsdp --model-class transformers",
)

Tolerance = Annotated[float, Range(0, 1)]
Seconds = Annotated[float, Range(1, 10**6)]

HOW: Final = "Validation"

app = typer.Typer(add_completion=False)


@app.command(cls=SpecCommand, epilog="\n\n".join(("Examples:", *EXAMPLES)))
@takes_run
def validate(
    asked: Run,
    *,
    backend: Annotated[
        str,
        typer.Option(
            metavar="WORD",
            help="What the step runs on: fake (tensors without data, at the run's world size) or "
            "cpu (a process of this machine for each GPU); cpu makes cluster.backend gloo.",
            rich_help_panel=HOW,
        ),
    ] = "fake",
    model_class: Annotated[
        str,
        typer.Option(
            metavar="WORD",
            help="Module that is run: own (zeroplan's, made from the architecture) or "
            "transformers; auto is own, and transformers where that lacks a layer.",
            rich_help_panel=HOW,
        ),
    ] = "auto",
    tolerance: Annotated[
        str,
        typer.Option(
            metavar="FRACTION",
            help="Largest error of a peak or a collective that counts as inside.",
            rich_help_panel=HOW,
        ),
    ] = "0.01",
    timeout: Annotated[
        str,
        typer.Option(
            metavar="SECONDS",
            help="How long the processes may take before they are ended.",
            rich_help_panel=HOW,
        ),
    ] = "600",
    profiles: ProfilesFolder = None,
    as_json: AsJson = False,
) -> None:
    """Run a real training step and lay it beside the prediction."""
    from zeroplan.validate import validate as answer_to  # noqa: PLC0415  # not for --help

    answer = answer_to(
        asked,
        backend=_value(Backend, "--backend", backend),
        model_class=_value(ModelClass | None, "--model-class", model_class),
        tolerance=_value(Tolerance, "--tolerance", tolerance),
        timeout=_value(Seconds, "--timeout", timeout),
        profiles=Path(profiles) if profiles else None,
    )
    sys.stdout.write(f"{answer.to_json()}\n" if as_json else _text(answer))
    if not answer.inside:
        raise typer.Exit(OUTSIDE)


def _value(hint: Any, flag: str, text: str) -> Any:
    try:
        return convert(hint, parse(hint, text))
    except UnfitError:
        raise UsageError(f"{flag} = {text!r}: use {describe(hint)}.") from None


def _text(answer: Validation) -> str:
    from zeroplan.report.terminal import page, prose, table_text  # noqa: PLC0415  # not for --json
    from zeroplan.validate.tables import calls_table, memory_table, verdict  # noqa: PLC0415

    on = page()
    tables = [memory_table(answer), *([calls_table(answer)] if answer.truth.collectives else [])]
    parts = [*(table_text(table, on) for table in tables), prose(verdict(answer), on)]
    if answer.notes:
        parts.append(prose(("Notes", *(f"- {line}" for line in answer.notes)), on))
    return "\n".join(parts)
