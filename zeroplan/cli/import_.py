"""`zeroplan import`: a trainer's own file as a spec file."""

import json
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from zeroplan.cli.completion import formats, offer
from zeroplan.cli.files import write_whole
from zeroplan.cli.flags import SpecCommand, takes_given
from zeroplan.cli.given import Given, read_given, tell
from zeroplan.cli.options import OUTPUT, AsJson
from zeroplan.errors import UsageError

__all__ = ["EXAMPLES", "app"]

EXAMPLES: Final = (
    "zeroplan import ds_config.json --model 70b --gpus 16 --compute-dtype bf16",
    "zeroplan import accelerate.yaml --model llama-3.1-8b --output run.toml",
    "zeroplan import job.toml --json",
)

app = typer.Typer(add_completion=False)


@app.command(cls=SpecCommand, epilog="\n\n".join(("Examples:", *EXAMPLES)))
@takes_given
def import_(
    given: Given,
    *,
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="DeepSpeed's JSON, accelerate's YAML and so on."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="WORD",
            help="deepspeed, accelerate, torchtitan, training-args or fsdp2; without it the file's "
            "name and keys tell.",
            autocompletion=offer(formats),
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the spec there.", rich_help_panel=OUTPUT
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Turn a trainer's own file into a spec file, and say what was understood of it.

    Each line of the spec says where it comes from. The flags of a spec fill in what no such file
    says: the model, the sequence length, the GPUs.
    """
    if file is None:
        raise UsageError("no file: name a trainer's configuration.")
    from zeroplan.foreign.formats import chosen  # noqa: PLC0415  # not for --help
    from zeroplan.foreign.parsing import read_text  # noqa: PLC0415
    from zeroplan.foreign.spec_text import imported  # noqa: PLC0415

    found = chosen(form, Path(file), read_text(Path(file)))
    if found.name in given.files:
        raise UsageError(f"{file} and --{found.name} are of one format: give one of them.")
    reading = read_given(given, {**given.files, found.name: file})
    answer = imported(reading, given.spec or {}, given.flags)
    text = f"{json.dumps(answer.to_dict(), indent=2)}\n" if as_json else answer.to_toml()
    if output is not None:
        write_whole(Path(output), text, "--output")
    else:
        sys.stdout.write(text)
    if output is not None or not sys.stdout.isatty():
        tell(reading)
        for key, why in answer.missing.items():
            sys.stderr.write(f"zeroplan: still missing: {key}: {why}.\n")
