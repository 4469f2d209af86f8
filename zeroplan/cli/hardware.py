"""`zeroplan hardware`: list, show and check the hardware profiles."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zeroplan.errors import SpecError
from zeroplan.hardware.catalogue import Catalogue, load_catalogue, suggestion
from zeroplan.hardware.check import faults
from zeroplan.hardware.profile import SCHEMA_VERSION, Fit, Gpu, Link, Profile, entries
from zeroplan.hardware.quantity import Choice, Quantity, unit_of
from zeroplan.hardware.read import Source
from zeroplan.units import GB, GIB, MIB, TERA

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="List, show and check the hardware profiles.")

ProfilesOption = Annotated[
    Path | None,
    typer.Option("--profiles", help="Folder whose profiles come before the shipped ones."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

_SCALES: Final = {
    "B": (GIB, "GiB"),
    "B/s": (GB, "GB/s"),
    "FLOP/s": (TERA, "TFLOP/s"),
    "s": (1e-6, "us"),
    "1": (1, ""),
}
"""What a person reads; the JSON stays in SI base units."""

_PIPED_WIDTH: Final = 120
"""Columns when nobody looks; rich would take 80 and fold long ids."""


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
        "fitted_points": "fitted to",
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


@app.command("list")
def list_profiles(*, profiles: ProfilesOption = None, as_json: JsonOption = False) -> None:
    """List all GPUs, links and node types."""
    catalogue = load_catalogue(profiles)
    groups = {
        "gpus": [_row(catalogue.gpu(gpu_id), "gpus") for gpu_id in catalogue.gpu_ids()],
        "links": [_row(catalogue.link(link_id), "links") for link_id in catalogue.link_ids()],
        "nodes": [_row(catalogue.node(node_id), "nodes") for node_id in catalogue.node_ids()],
    }
    if as_json:
        _print_json({"schema_version": SCHEMA_VERSION, **groups})
        return
    console = _console()
    for group, rows in groups.items():
        console.print(_table(_COLUMNS[group], rows))


@app.command()
def show(
    profile_id: Annotated[str, typer.Argument(metavar="ID", help="Id of a GPU, link or node.")],
    *,
    profiles: ProfilesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every number of one profile with its unit, kind and source."""
    catalogue = load_catalogue(profiles)
    profile = _find(catalogue, profile_id)
    cited = {entry.source for _, entry in entries(profile)}
    sources = {key: source for key, source in catalogue.sources().items() if key in cited}
    if as_json:
        record = {"record": type(profile).__name__.lower(), **asdict(profile)}
        texts = {key: asdict(source) for key, source in sources.items()}
        _print_json({"schema_version": SCHEMA_VERSION, **record, "sources": texts})
        return
    _print_profile(profile, sources)


@app.command()
def check(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Folder to check with the shipped ones.")
    ] = None,
) -> None:
    """Check all profiles: keys, kinds, sources, efficiencies, names and references."""
    catalogue = load_catalogue(folder)
    found = list(faults(catalogue))
    for fault in found:
        typer.echo(fault, err=True)
    if found:
        raise typer.Exit(SpecError.exit_code)
    typer.echo(
        f"{len(catalogue.gpu_ids())} GPUs, {len(catalogue.link_ids())} links,"
        f" {len(catalogue.node_ids())} nodes, {len(catalogue.sources())} sources: all good."
    )


def _find(catalogue: Catalogue, profile_id: str) -> Profile:
    """Read the profile of whatever has the id."""
    readers: tuple[tuple[tuple[str, ...], Callable[[str], Profile]], ...] = (
        (catalogue.gpu_ids(), catalogue.gpu),
        (catalogue.link_ids(), catalogue.link),
        (catalogue.node_ids(), catalogue.node),
    )
    for ids, read in readers:
        if profile_id in ids:
            return read(profile_id)
    known = [known_id for ids, _ in readers for known_id in ids]
    message = f"{profile_id!r} is no GPU, link or node.{suggestion(profile_id, known)}"
    raise SpecError(message)


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


def _table(columns: dict[str, str], rows: list[dict[str, Any]]) -> Table:
    """Return the rows scaled for a reader, numbers to the right, their unit in the heading."""
    table = Table(box=SIMPLE_HEAD)
    scales = {key: _SCALES.get(unit_of(key), (1, unit_of(key))) for key in columns}
    for key, heading in columns.items():
        is_number = any(isinstance(row[key], int | float) for row in rows)
        unit = f"\n[{scales[key][1]}]" if is_number and scales[key][1] else ""
        justify: Literal["right", "left"] = "right" if is_number else "left"
        width = max(len(row["id"]) for row in rows) if key == "id" else None
        table.add_column(escape(heading + unit), justify=justify, overflow="fold", min_width=width)
    for row in rows:
        table.add_row(*(escape(_text(row[key], scales[key][0])) for key in columns))
    return table


def _print_profile(profile: Profile, sources: dict[str, Source]) -> None:
    """Print a table of the numbers, then their notes, then the sources by their number."""
    console = _console()
    numbers = {key: str(number) for number, key in enumerate(sources, start=1)}
    table = Table(box=SIMPLE_HEAD)
    for heading in ("quantity", "value", "+/-", "kind", "source"):
        justify: Literal["right", "left"] = "left" if heading in {"quantity", "kind"} else "right"
        table.add_column(heading, justify=justify, overflow="fold")
    for key, entry in entries(profile):
        table.add_row(escape(key), *_cells(entry), entry.kind, numbers[entry.source])
    console.print(escape(f"{profile.id}, revision {profile.revision}: {profile.name}"))
    console.print(table)
    if isinstance(profile, Link) and profile.fit is not None:
        _print_fit(profile.fit, console)
    notes = [f"  {key}: {entry.note}" for key, entry in entries(profile) if entry.note]
    titles = [f"  {numbers[key]}  {source.title} {source.url}" for key, source in sources.items()]
    for line in ("Notes", *notes, "", "Sources", *titles):
        console.print(escape(line.rstrip()), soft_wrap=True)


def _print_fit(fit: Fit, console: Console) -> None:
    """Print where the fitted numbers come from, where they hold and how well."""
    small, large = fit.smallest_bytes / MIB, fit.largest_bytes / MIB
    ranks = f"{fit.fewest_ranks} to {fit.most_ranks} GPUs"
    median = fit.median_error_large, fit.median_error_medium, fit.median_error_small
    lines = [
        "Fit",
        f"  {fit.command}, {fit.date}",
        f"  {fit.points:,} points of {', '.join(fit.sources)}",
        f"  messages of {small:,.4g} to {large:,.6g} MiB, {ranks}",
        f"  median error above 16 MiB, from 1 MiB, below: {', '.join(map(_share, median))}",
    ]
    if fit.held_out:
        held = fit.held_out_error_large, fit.held_out_error_medium, fit.held_out_error_small
        lines.append(f"  the same held out: {', '.join(map(_share, held))} ({fit.held_out})")
    for line in (*lines, ""):
        console.print(escape(line), soft_wrap=True)


def _share(error: float | None) -> str:
    return "-" if error is None else f"{error:.1%}"


def _cells(entry: Quantity | Choice) -> tuple[str, str]:
    """Return the value with its unit, and its uncertainty."""
    if isinstance(entry, Choice):
        return escape(entry.value), ""
    scale, unit = _SCALES.get(entry.unit, (1, entry.unit))
    if unit == "GiB" and entry.value < scale:
        scale, unit = MIB, "MiB"
    share = "" if entry.rel_uncertainty is None else f"{entry.rel_uncertainty:.0%}"
    return f"{_text(entry.value, scale)} {unit}".rstrip(), share


def _text(value: str | float | None, scale: float) -> str:
    """Return a value for a reader, numbers scaled and to four digits."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value / scale:,.4g}"


def _console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPED_WIDTH
    return console


def _print_json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, indent=2, allow_nan=False))
