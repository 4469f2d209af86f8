"""`zeroplan inspect`: what a model is."""

import json
import sys
from typing import Annotated

import typer

from zeroplan.cli.completion import offer, presets
from zeroplan.cli.light import LightCommand
from zeroplan.cli.options import count
from zeroplan.errors import UsageError

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command(cls=LightCommand)
def inspect(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="Preset (llama-3.1-70b), path to a config.json, or size (70b).",
            autocompletion=offer(presets),
        ),
    ] = None,
    *,
    sequence_length: Annotated[
        str | None,
        typer.Option(
            "--sequence-length",
            "-s",
            metavar="N",
            help="Sequence length of the FLOPs; 4096, or the model's maximum if that is less. "
            r"\[tokens]",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="List the presets.")] = False,
) -> None:
    """Show what a model is: blocks, exact parameter counts, bytes, FLOPs per token."""
    if list_all:
        _list_presets(as_json=as_json)
        return
    if model is None:
        raise UsageError("no model: name a preset (--list), a config.json or a size.")
    from zeroplan.workload.load import load_model  # noqa: PLC0415  # not for --help

    length = None if sequence_length is None else count("--sequence-length", sequence_length)
    counted = load_model(model, length)
    if as_json:
        _write_json({"model": counted.to_dict()})
        return
    from zeroplan.report.model import model_text  # noqa: PLC0415  # not for --json
    from zeroplan.report.terminal import page  # noqa: PLC0415

    sys.stdout.write(model_text(counted, page()))


def _list_presets(*, as_json: bool) -> None:
    from zeroplan.spec.presets import list_presets  # noqa: PLC0415  # not for --help

    names = list_presets()
    if as_json:
        _write_json({"presets": names})
    else:
        sys.stdout.write("".join(f"{name}\n" for name in names))


def _write_json(answer: dict[str, object]) -> None:
    document = json.dumps({"schema_version": 1, **answer}, indent=2, allow_nan=False)
    sys.stdout.write(f"{document}\n")
