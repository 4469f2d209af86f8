"""`zeroplan calibrate`: measurements in, a new profile file out."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from zeroplan.cli.completion import gpu_ids, link_names, offer
from zeroplan.cli.files import write_whole
from zeroplan.cli.light import LightCommand
from zeroplan.cli.options import AsJson, ProfilesFolder
from zeroplan.cli.progress import working
from zeroplan.errors import UsageError

if TYPE_CHECKING:
    from zeroplan.calibration import Calibration, Choice, NodeProfile, RecordsCalibration
    from zeroplan.hardware.profile import Profile

    Result = Calibration | NodeProfile | RecordsCalibration

__all__ = ["EXAMPLES", "app"]

EXAMPLES: Final = (
    "zeroplan calibrate --collectives nccl.csv --link ib-ndr400",
    "zeroplan calibrate --collectives all_gather.log --link nvlink4 --output own",
    "zeroplan calibrate --collectives nccl.csv --link roce-400 --only all_gather --json",
    "zeroplan calibrate run-1.json run-2.json --output own",
    "zeroplan calibrate --topology topo.txt --gpu h100-sxm5-80gb --nic-gbps 400 --output own",
)

INPUT: Final = "What was measured"
COLLECTIVES: Final = "With --collectives"
TOPOLOGY: Final = "With --topology"

app = typer.Typer(add_completion=False)


@app.command(cls=LightCommand, epilog="\n\n".join(("Examples:", *EXAMPLES)))
def calibrate(
    records: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECORD.json",
            help="Records of runs, as `zeroplan validate --record` writes them.",
            show_default=False,
        ),
    ] = None,
    *,
    collectives: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Collectives: a table (.csv), or a log of nccl-tests or rccl-tests.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A node: the output of nvidia-smi topo -m; that of nvidia-smi -L and of "
            "nvidia-smi topo -p2p r may stand beside it.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="Write the new profile there: a file (.toml), or a folder of profiles.",
        ),
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Link to fit; what the points cannot tell it keeps.",
            autocompletion=offer(link_names),
            rich_help_panel=COLLECTIVES,
        ),
    ] = None,
    constants: Annotated[
        str,
        typer.Option(
            metavar="KEY,KEY",
            help="Fit these keys of the profile only.",
            rich_help_panel=COLLECTIVES,
        ),
    ] = "",
    only: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME", help="Use these collectives only.", rich_help_panel=COLLECTIVES
        ),
    ] = "",
    gpus: Annotated[
        str,
        typer.Option(
            metavar="ID,ID",
            help="Use runs on these GPUs only.",
            autocompletion=offer(gpu_ids, several=True),
            rich_help_panel=COLLECTIVES,
        ),
    ] = "",
    min_bytes: Annotated[
        str,
        typer.Option(metavar="N", help="Use no smaller messages. [B]", rich_help_panel=COLLECTIVES),
    ] = "0",
    equal_sources: Annotated[
        bool,
        typer.Option(
            "--equal-sources",
            help="Let every source weigh the same, not every point.",
            rich_help_panel=COLLECTIVES,
        ),
    ] = False,
    gpu: Annotated[
        str,
        typer.Option(
            metavar="ID",
            help="GPU of the node, which topo -m does not name.",
            autocompletion=offer(gpu_ids),
            rich_help_panel=TOPOLOGY,
        ),
    ] = "",
    intra_link: Annotated[
        str,
        typer.Option(
            metavar="ID",
            help="Link inside, if it is not what topo shows.",
            autocompletion=offer(link_names),
            rich_help_panel=TOPOLOGY,
        ),
    ] = "",
    node_link: Annotated[
        str,
        typer.Option(
            metavar="WORD|ID",
            help="Link between nodes: ib, roce, efa, ethernet, or a profile.",
            autocompletion=offer(link_names),
            rich_help_panel=TOPOLOGY,
        ),
    ] = "",
    nic_gbps: Annotated[
        str,
        typer.Option(metavar="N", help="Line rate of one NIC. [Gbit/s]", rich_help_panel=TOPOLOGY),
    ] = "",
    profiles: ProfilesFolder = None,
    as_json: AsJson = False,
) -> None:
    """Make new profiles of what was measured.

    Records make a GPU, and a link where collectives were timed. Collectives
    make a link: its constants are fitted, and errors are shown on the fitted
    points and on sources that were held out. A table has the columns of
    `zeroplan backtest --collectives`; of a log, every run counts as one on the
    link. A topology makes a node. No file is overwritten.
    """
    own = Path(profiles) if profiles else None
    if sum(map(bool, (records, collectives, topology))) != 1:
        raise UsageError(
            "name what was measured: RECORD.json, or --collectives FILE, or --topology FILE."
        )
    if _name(output):
        _new(Path(output or ""))
    result: Result
    if topology:
        from zeroplan.calibration import Told, describe_node  # noqa: PLC0415  # not for --help

        rate = _rate("--nic-gbps", nic_gbps)
        told = Told(gpu=gpu, intra_link=intra_link, node_link=node_link, nic_gbps=rate)
        result = describe_node(topology, told=told, name=_name(output), profiles=own)
    elif records:
        from zeroplan.calibration import calibrate_records  # noqa: PLC0415  # not for --help

        with working("calibrating", quiet=as_json):
            result = calibrate_records(records, link=link or "", profiles=own)
    else:
        choice = _choice(constants, only, gpus, min_bytes, equal_sources=equal_sources)
        result = _of_collectives(str(collectives), link, choice, output, own, quiet=as_json)
    _write(result.profiles, output)
    _print(result, as_json=as_json)


def _choice(
    constants: str, only: str, gpus: str, min_bytes: str, *, equal_sources: bool
) -> "Choice":
    from zeroplan.calibration import Choice  # noqa: PLC0415  # not for --help

    if not min_bytes.isdecimal():
        raise UsageError(f"--min-bytes {min_bytes!r}: write a whole number of bytes.")
    return Choice(
        constants=_words(constants),
        collectives=_words(only),
        gpus=_words(gpus.lower()),
        min_bytes=int(min_bytes),
        equal_sources=equal_sources,
    )


def _of_collectives(
    file: str,
    link: str | None,
    choice: "Choice",
    output: str | None,
    profiles: Path | None,
    *,
    quiet: bool,
) -> "Result":
    from zeroplan.calibration import calibrate_collectives  # noqa: PLC0415  # not for --help

    if link is None:
        raise UsageError("name the link that the collectives ran on with --link.")
    with working("fitting", quiet=quiet):
        return calibrate_collectives(
            file, link, choice=choice, name=_name(output), profiles=profiles
        )


def _print(result: "Result", *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(f"{result.to_json()}\n")
        return
    from zeroplan.report.calibrate import calibration_text  # noqa: PLC0415  # not for --json
    from zeroplan.report.terminal import page  # noqa: PLC0415

    sys.stdout.write(calibration_text(result, page()))


def _write(profiles: "tuple[Profile, ...]", output: str | None) -> None:
    """Write each profile to a new file: the one that is named, or its own in a folder."""
    if output is None:
        return
    from zeroplan.calibration.write import profile_toml  # noqa: PLC0415  # not for --help
    from zeroplan.hardware.catalogue import FOLDERS  # noqa: PLC0415

    named = _name(output) != ""
    if named and len(profiles) > 1:
        ids = " and ".join(each.id for each in profiles)
        raise UsageError(f"--output {output}: {ids} need a folder, not one file.")
    targets = [
        _new(Path(output) if named else Path(output, FOLDERS[type(each)], f"{each.id}.toml"))
        for each in profiles
    ]
    for target, profile in zip(targets, profiles, strict=True):
        write_whole(target, profile_toml(profile), "--output")


def _new(path: Path) -> Path:
    """Refuse a file that is there already."""
    if path.exists():
        raise UsageError(f"--output {path}: there is such a file; name a new one.")
    return path


def _name(output: str | None) -> str:
    """Return the id of a profile whose file is named."""
    path = Path(output or "")
    return path.stem if path.suffix == ".toml" else ""


def _rate(flag: str, text: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UsageError(f"{flag} {text!r}: write a number above 0.")
    return value


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
