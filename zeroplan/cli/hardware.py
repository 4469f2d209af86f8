"""`zeroplan hardware`: list, show, compare and check the hardware profiles."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from zeroplan.cli.completion import offer, profile_ids
from zeroplan.cli.light import LightCommand, LightGroup
from zeroplan.cli.options import AsJson, ProfilesFolder
from zeroplan.errors import SpecError, UsageError
from zeroplan.hardware.catalogue import Catalogue, load_catalogue, suggestion, usual_link
from zeroplan.hardware.check import faults
from zeroplan.hardware.diff import differences
from zeroplan.hardware.profile import MAPPING_KEYS, SCHEMA_VERSION, Gpu, Link, Profile, entries
from zeroplan.hardware.quantity import Choice, Quantity, unit_of
from zeroplan.hardware.read import Source, read_any, read_sources
from zeroplan.report.hardware import cell, difference_text, profile_text
from zeroplan.report.terminal import page, table_text
from zeroplan.rows import Column, Table, plain
from zeroplan.units import SCALES

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["app"]

app = typer.Typer(cls=LightGroup, add_completion=False)

_COLUMNS: Final = {
    "gpus": {
        "id": "GPU",
        "usable_bytes": "usable",
        "hbm_bytes_per_second": "memory",
        "dense_16_bit_flop_per_second": "16 bit",
        "node_link": "usual link",
    },
    "links": {
        "id": "link",
        "scope": "inside a",
        "bandwidth_bytes_per_second": "line rate",
        "bandwidth_efficiency": "share reached",
        "latency_seconds": "step",
        "small_message_base_seconds": "start",
        "fitted_points": "points fitted",
    },
    "nodes": {
        "id": "node",
        "gpus": "GPUs",
        "gpu": "GPU",
        "node_link": "link",
        "usd_per_hour": "price",
    },
}
"""What `list` shows of each group: key and heading."""


@app.callback(invoke_without_command=True)
def hardware(context: typer.Context) -> None:
    """List, show, compare and check the hardware profiles."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("list", cls=LightCommand)
def list_profiles(*, profiles: ProfilesFolder = None, as_json: AsJson = False) -> None:
    """List all GPUs, links and node types."""
    catalogue = load_catalogue(Path(profiles) if profiles else None)
    groups = {
        "gpus": [_row(catalogue.gpu(gpu_id), "gpus") for gpu_id in catalogue.gpu_ids()],
        "links": [_row(catalogue.link(link_id), "links") for link_id in catalogue.link_ids()],
        "nodes": [_row(catalogue.node(node_id), "nodes") for node_id in catalogue.node_ids()],
    }
    if as_json:
        _print_json({"schema_version": SCHEMA_VERSION, **groups})
        return
    tables = (_table(group, _COLUMNS[group], rows) for group, rows in groups.items())
    sys.stdout.write("\n".join(table_text(table, page()) for table in tables))


@app.command(cls=LightCommand)
def show(
    profile_id: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="Id of a GPU, link or node.", autocompletion=offer(profile_ids)
        ),
    ],
    *,
    profiles: ProfilesFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show every number of one profile with its unit, kind and source."""
    catalogue = load_catalogue(Path(profiles) if profiles else None)
    names = MAPPING_KEYS["usual_links"]
    named = profile_id in names and profile_id not in catalogue.link_ids()
    profile = _usual(catalogue, profile_id) if named else _find(catalogue, profile_id, names)
    cited = {entry.source for _, entry in entries(profile)}
    sources = {key: source for key, source in catalogue.sources().items() if key in cited}
    if as_json:
        record = {"record": type(profile).__name__.lower(), **asdict(profile)}
        texts = {key: asdict(source) for key, source in sources.items()}
        _print_json({"schema_version": SCHEMA_VERSION, **record, "sources": texts})
        return
    sys.stdout.write(profile_text(profile, sources, page()))


@app.command(cls=LightCommand)
def diff(
    first: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="Id of a profile, or its file (.toml).",
            autocompletion=offer(profile_ids),
        ),
    ],
    second: Annotated[
        str,
        typer.Argument(
            metavar="B", help="Another of the same kind.", autocompletion=offer(profile_ids)
        ),
    ],
    *,
    profiles: ProfilesFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show what two GPUs, links or nodes differ in: values, kinds and sources."""
    catalogue = load_catalogue(Path(profiles) if profiles else None)
    before, after = (_read(catalogue, each) for each in (first, second))
    if type(before) is not type(after):
        kinds = " and a ".join(type(each).__name__ for each in (before, after))
        raise UsageError(f"{first} and {second} are a {kinds}: name two of the same kind.")
    found = differences(before, after)
    known = _sources(catalogue, first, second)
    cited = [getattr(value, "source", "") for each in found for value in (each.before, each.after)]
    sources = {key: source for key, source in known.items() if key in cited}
    if as_json:
        _print_json(
            {
                "schema_version": SCHEMA_VERSION,
                "record": type(before).__name__.lower(),
                "before": before.id,
                "after": after.id,
                "differences": [plain(each) for each in found],
                "sources": {key: asdict(source) for key, source in sources.items()},
            }
        )
        return
    sys.stdout.write(difference_text(before, after, sources, page()))


@app.command(cls=LightCommand)
def check(
    folder: Annotated[
        str | None, typer.Argument(metavar="DIR", help="Folder to check with the shipped ones.")
    ] = None,
) -> None:
    """Check all profiles: keys, kinds, sources, efficiencies, names and references."""
    catalogue = load_catalogue(Path(folder) if folder else None)
    found = list(faults(catalogue))
    for fault in found:
        typer.echo(fault, err=True)
    if found:
        raise typer.Exit(SpecError.exit_code)
    typer.echo(f"{catalogue.counted()}, {len(catalogue.sources())} sources: all good.")


def _read(catalogue: Catalogue, word: str) -> Profile:
    """Read a profile by its id, or from a file of its own."""
    path = Path(word)
    if path.suffix == ".toml":
        return read_any(path, _sources(catalogue, word))
    return _find(catalogue, word)


def _sources(catalogue: Catalogue, *words: str) -> dict[str, Source]:
    """Return the known sources, with those beside profiles that are named by their file."""
    beside = (
        Path(word).absolute().parents[1] / "sources.toml"
        for word in words
        if word.endswith(".toml")
    )
    return {key: each for path in beside for key, each in read_sources(path).items()} | (
        catalogue.sources()
    )


def _find(catalogue: Catalogue, profile_id: str, names: tuple[str, ...] = ()) -> Profile:
    """Read the profile of whatever has the id; `names` are suggested too."""
    readers: tuple[tuple[tuple[str, ...], Callable[[str], Profile]], ...] = (
        (catalogue.gpu_ids(), catalogue.gpu),
        (catalogue.link_ids(), catalogue.link),
        (catalogue.node_ids(), catalogue.node),
    )
    for ids, read in readers:
        if profile_id in ids:
            return read(profile_id)
    known = [
        *names,
        *catalogue.usual_gpu_ids(),
        *catalogue.link_ids(),
        *catalogue.node_ids(),
    ]
    message = f"{profile_id!r} is no GPU, link or node.{suggestion(profile_id, known)}"
    raise SpecError(message)


def _usual(catalogue: Catalogue, alias: str) -> Profile:
    """Read the link that a name such as ib means, and say for which GPU."""
    from zeroplan.estimation.resolve import DEFAULT_GPU  # noqa: PLC0415  # only for a link's name

    link = usual_link(alias, catalogue.gpu(DEFAULT_GPU), catalogue)
    typer.echo(f"{alias} is {link.id} for {DEFAULT_GPU}, the default GPU.", err=True)
    return link


def _row(profile: Profile, group: str) -> dict[str, Any]:
    """Return the values of a profile that `list` shows, in SI base units."""
    row = {key: getattr(profile, key, None) for key in _COLUMNS[group]}
    if isinstance(profile, Gpu):
        peaks = profile.peak_flop_per_second
        row["dense_16_bit_flop_per_second"] = peaks.get("bf16", peaks.get("fp16"))
    if isinstance(profile, Link):
        row["fitted_points"] = profile.fit.points if profile.fit else None
    return {
        key: entry.value if isinstance(entry, Quantity | Choice) else entry
        for key, entry in row.items()
    }


def _table(title: str, columns: dict[str, str], rows: list[dict[str, Any]]) -> Table:
    """Return the rows scaled for a reader, numbers to the right, their unit in the heading."""
    scales = {key: SCALES.get(unit_of(key), (1, unit_of(key))) for key in columns}
    numbers = {key for key in columns if any(isinstance(row[key], int | float) for row in rows)}
    return Table(
        title={"gpus": "GPUs"}.get(title, title.capitalize()),
        columns=tuple(
            Column(
                name=heading,
                unit=scales[key][1] if key in numbers else "",
                is_text=key not in numbers,
            )
            for key, heading in columns.items()
        ),
        rows=tuple(tuple(cell(row[key], scales[key][0]) for key in columns) for row in rows),
    )


def _print_json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, indent=2, allow_nan=False))
