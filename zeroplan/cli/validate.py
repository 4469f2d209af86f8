"""`zeroplan validate`: one real training step beside the prediction."""

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from zeroplan.cli.completion import offer, words
from zeroplan.cli.files import refuse_unwritable, write_whole
from zeroplan.cli.flags import SpecCommand, takes_run_or_none
from zeroplan.cli.given import NO_MODEL
from zeroplan.cli.options import OUTPUT, OUTSIDE, AsJson, ProfilesFolder
from zeroplan.cli.progress import is_watched, working
from zeroplan.errors import UsageError
from zeroplan.spec.hints import AUTO, UnfitError, convert, describe, literals, parse
from zeroplan.spec.run import Run
from zeroplan.spec.words import Count, Range, Share
from zeroplan.validate.measurement import RunRecord
from zeroplan.validate.record import Backend, ModelClass
from zeroplan.validate.validation import Validation

__all__ = ["EXAMPLES", "app"]

EXAMPLES: Final = (
    "zeroplan validate -m llama-3.2-1b -n 8 --strategy fsdp2",
    "zeroplan validate --spec run.toml --backend fake --tolerance 0.001 --json",
    "zeroplan validate -m ./config.json -n 2 --strategy ddp --backend cpu",
    "zeroplan validate -m ./config.json -n 16 --strategy hsdp --model-class transformers",
    "zeroplan validate -m 8b --backend cuda --pretend-gpus 64 --record 8b-on-64.json",
    "torchrun --nproc-per-node 8 -m zeroplan validate -m 8b --backend cuda --record 8b.json",
    "zeroplan validate --from 8b.json",
)

Seconds = Annotated[float, Range(1, 10**6)]

HOW: Final = "Validation"

app = typer.Typer(add_completion=False)


@app.command(cls=SpecCommand, epilog="\n\n".join(("Examples:", *EXAMPLES)))
@takes_run_or_none
def validate(
    asked: Run | None,
    *,
    backend: Annotated[
        str,
        typer.Option(
            metavar="WORD",
            help="What the step runs on: fake (tensors without data, at the run's world size), "
            "cpu (a process of this machine for each GPU, over gloo) or cuda (GPUs, over NCCL); "
            "cpu and cuda set cluster.backend.",
            autocompletion=offer(words(*literals(Backend))),
            rich_help_panel=HOW,
        ),
    ] = "fake",
    model_class: Annotated[
        str,
        typer.Option(
            metavar="WORD",
            help="Module that is run: own (zeroplan's, made from the architecture) or "
            "transformers; auto is own, and transformers where that lacks a layer.",
            autocompletion=offer(words(*literals(ModelClass), AUTO)),
            rich_help_panel=HOW,
        ),
    ] = "auto",
    tolerance: Annotated[
        str,
        typer.Option(
            metavar="FRACTION",
            help="Largest error of a peak or a collective that counts as inside; auto is 0.01, "
            "and 0.02 on GPUs.",
            rich_help_panel=HOW,
        ),
    ] = "auto",
    timeout: Annotated[
        str,
        typer.Option(
            metavar="SECONDS",
            help="How long the processes may take before they are ended.",
            rich_help_panel=HOW,
        ),
    ] = "600",
    pretend_gpus: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Run one rank of a job of N GPUs and pretend the others: true memory and "
            "computing on one GPU, no communication.",
            rich_help_panel=HOW,
        ),
    ] = None,
    micro_benches: Annotated[
        bool,
        typer.Option(
            "--micro-benches",
            help="Time collectives, matrix products and copies by themselves too.",
            rich_help_panel=HOW,
        ),
    ] = False,
    record: Annotated[
        str | None,
        typer.Option(
            "--record",
            metavar="FILE.json",
            help="Write what ran and all that it showed there, also where it failed.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    collectives: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.csv",
            help="Write the collectives of --micro-benches there, as calibrate and backtest read "
            "them.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    earlier: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE.json",
            help="Run nothing: lay the run of a record beside today's prediction.",
            rich_help_panel=HOW,
        ),
    ] = None,
    profiles: ProfilesFolder = None,
    as_json: AsJson = False,
) -> None:
    """Run real training steps and lay them beside the prediction."""
    from zeroplan.validate import compare, read_record, recorded  # noqa: PLC0415  # not for --help
    from zeroplan.validate.joined import seat  # noqa: PLC0415

    if collectives is not None and not micro_benches:
        raise UsageError("--collectives: only --micro-benches time them; give both.")
    for path, option in ((record, "--record"), (collectives, "--collectives")):
        if path is not None:
            refuse_unwritable(Path(path), option)
    folder = Path(profiles) if profiles else None
    limit = _value(Share | None, "--tolerance", tolerance)
    if asked is None and earlier is None:
        raise UsageError(NO_MODEL)
    if earlier is not None:
        if asked is not None or record is not None:
            raise UsageError("--from: the record says what ran; leave out the spec and --record.")
        run = read_record(earlier)
    else:
        measured_on = _value(Backend, "--backend", backend)
        with working("running a step", quiet=as_json or measured_on != "fake"):  # others tell it
            run = recorded(
                asked,
                backend=measured_on,
                model_class=_value(ModelClass | None, "--model-class", model_class),
                timeout=_value(Seconds, "--timeout", timeout),
                pretend_gpus=_value(Count | None, "--pretend-gpus", pretend_gpus or "auto"),
                micro_benches=micro_benches,
                profiles=folder,
                tells=is_watched() and not as_json,
            )
    place = seat() if earlier is None else None
    if place is not None and not place.leads:
        return
    try:
        answer = compare(run, tolerance=limit, profiles=folder)
        sys.stdout.write(f"{answer.to_json()}\n" if as_json else _text(answer))
    finally:
        _write(run, record, collectives, folder)
    if not answer.inside:
        raise typer.Exit(OUTSIDE)


def _write(
    run: RunRecord, record: str | None, collectives: str | None, profiles: Path | None
) -> None:
    """Write what was asked for, after the answer: a full disk then takes the files alone."""
    if record is not None:
        write_whole(Path(record), f"{run.to_json()}\n", "--record")
    if collectives is not None:
        from zeroplan.validate.collectives import to_csv  # noqa: PLC0415  # rarely asked for

        write_whole(Path(collectives), to_csv(run, profiles), "--collectives")


def _value(hint: Any, flag: str, text: str) -> Any:
    try:
        return convert(hint, parse(hint, text))
    except UnfitError:
        raise UsageError(f"{flag} = {text!r}: use {describe(hint)}.") from None


def _text(answer: Validation) -> str:
    from zeroplan.report.terminal import page, prose, table_text  # noqa: PLC0415  # not for --json
    from zeroplan.validate.tables import tables, verdict  # noqa: PLC0415

    on = page()
    parts = [*(table_text(table, on) for table in tables(answer)), prose(verdict(answer), on)]
    if answer.notes:
        parts.append(prose(("Notes", *(f"- {line}" for line in answer.notes)), on))
    return "\n".join(parts)
