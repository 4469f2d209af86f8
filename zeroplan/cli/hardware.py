"""`zeroplan hardware`: list, show and check the hardware profiles."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from zeroplan.cli.light import LightCommand
from zeroplan.cli.options import AsJson, ProfilesFolder
from zeroplan.errors import SpecError
from zeroplan.hardware.catalogue import Catalogue, load_catalogue, suggestion
from zeroplan.hardware.check import faults
from zeroplan.hardware.profile import SCHEMA_VERSION, Fit, Gpu, Link, Profile, entries
from zeroplan.hardware.quantity import Choice, Quantity, unit_of
from zeroplan.hardware.read import Source
from zeroplan.report.terminal import page, table_text
from zeroplan.rows import Column, Table
from zeroplan.units import GB, GIB, MIB, TERA

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["app"]

app = typer.Typer(add_completion=False)

_SCALES: Final = {
    "B": (GIB, "GiB"),
    "B/s": (GB, "GB/s"),
    "FLOP/s": (TERA, "TFLOP/s"),
    "s": (1e-6, "us"),
    "1": (1, ""),
}
"""What a person reads; the JSON stays in SI base units."""

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
    """List, show and check the hardware profiles."""
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
    profile_id: Annotated[str, typer.Argument(metavar="ID", help="Id of a GPU, link or node.")],
    *,
    profiles: ProfilesFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show every number of one profile with its unit, kind and source."""
    catalogue = load_catalogue(Path(profiles) if profiles else None)
    profile = _find(catalogue, profile_id)
    cited = {entry.source for _, entry in entries(profile)}
    sources = {key: source for key, source in catalogue.sources().items() if key in cited}
    if as_json:
        record = {"record": type(profile).__name__.lower(), **asdict(profile)}
        texts = {key: asdict(source) for key, source in sources.items()}
        _print_json({"schema_version": SCHEMA_VERSION, **record, "sources": texts})
        return
    _print_profile(profile, sources)


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


def _table(title: str, columns: dict[str, str], rows: list[dict[str, Any]]) -> Table:
    """Return the rows scaled for a reader, numbers to the right, their unit in the heading."""
    scales = {key: _SCALES.get(unit_of(key), (1, unit_of(key))) for key in columns}
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
        rows=tuple(tuple(_text(row[key], scales[key][0]) for key in columns) for row in rows),
    )


def _print_profile(profile: Profile, sources: dict[str, Source]) -> None:
    """Print a table of the numbers, then their notes, then the sources by their number."""
    numbers = {key: str(number) for number, key in enumerate(sources, start=1)}
    table = Table(
        title=f"{profile.id}, revision {profile.revision}: {profile.name}",
        columns=tuple(
            Column(name=name, is_text=name in {"quantity", "kind"})
            for name in ("quantity", "value", "+/-", "kind", "source")
        ),
        rows=tuple(
            (key, *_cells(entry), entry.kind, numbers[entry.source])
            for key, entry in entries(profile)
        ),
    )
    sys.stdout.write(f"{table_text(table, page())}\n")
    if isinstance(profile, Link) and profile.fit is not None:
        _print_lines((*_fit_lines(profile.fit), ""))
    notes = [f"  {key}: {entry.note}" for key, entry in entries(profile) if entry.note]
    titles = [f"  {numbers[key]}  {source.title} {source.url}" for key, source in sources.items()]
    _print_lines(("Notes", *notes, "", "Sources", *titles))


def _print_lines(lines: Iterable[str]) -> None:
    """Print lines, folded where somebody looks; addresses stay whole."""
    for line in lines:
        folded = wrap(
            line,
            page().width,
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        sys.stdout.write("".join(f"{part}\n" for part in folded or [""]))


def _fit_lines(fit: Fit) -> Iterator[str]:
    """Yield where the fitted numbers come from, where they hold and how well."""
    small, large = fit.smallest_bytes / MIB, fit.largest_bytes / MIB
    ranks = f"{fit.fewest_ranks} to {fit.most_ranks} GPUs"
    median = fit.median_error_large, fit.median_error_medium, fit.median_error_small
    yield "Fit"
    yield f"  {fit.command}, {fit.date}"
    yield f"  {fit.points:,} points of {', '.join(fit.sources)}"
    yield f"  messages of {small:,.4g} to {large:,.6g} MiB, {ranks}"
    yield f"  median error above 16 MiB, from 1 MiB, below: {', '.join(map(_share, median))}"
    if fit.held_out:
        held = fit.held_out_error_large, fit.held_out_error_medium, fit.held_out_error_small
        yield f"  the same held out: {', '.join(map(_share, held))} ({fit.held_out})"


def _share(error: float | None) -> str:
    return "-" if error is None else f"{error:.1%}"


def _cells(entry: Quantity | Choice) -> tuple[str, str]:
    """Return the value with its unit, and its uncertainty."""
    if isinstance(entry, Choice):
        return entry.value, ""
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


def _print_json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, indent=2, allow_nan=False))
