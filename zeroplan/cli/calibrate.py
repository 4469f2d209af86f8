"""`zeroplan calibrate`: measurements in, a new profile file out."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from zeroplan.cli.files import write_whole
from zeroplan.cli.light import LightCommand
from zeroplan.cli.options import AsJson, ProfilesFolder
from zeroplan.errors import UsageError

if TYPE_CHECKING:
    from zeroplan.calibration import Calibration, NodeProfile

__all__ = ["EXAMPLES", "app"]

EXAMPLES: Final = (
    "zeroplan calibrate --collectives nccl.csv --link ib-ndr400",
    "zeroplan calibrate --collectives all_gather.log --link nvlink4 --output own",
    "zeroplan calibrate --collectives nccl.csv --link roce-400 --only all_gather --json",
    "zeroplan calibrate --topology topo.txt --gpu h100-sxm5-80gb --nic-gbps 400 --output own",
)

INPUT: Final = "What was measured"
COLLECTIVES: Final = "With --collectives"
TOPOLOGY: Final = "With --topology"

app = typer.Typer(add_completion=False)


@app.command(cls=LightCommand, epilog="\n\n".join(("Examples:", *EXAMPLES)))
def calibrate(
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
            metavar="ID,ID", help="Use runs on these GPUs only.", rich_help_panel=COLLECTIVES
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
            rich_help_panel=TOPOLOGY,
        ),
    ] = "",
    intra_link: Annotated[
        str,
        typer.Option(
            metavar="ID",
            help="Link inside, if it is not what topo shows.",
            rich_help_panel=TOPOLOGY,
        ),
    ] = "",
    node_link: Annotated[
        str,
        typer.Option(
            metavar="WORD|ID",
            help="Link between nodes: ib, roce, efa, ethernet, or a profile.",
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
    """Make a new profile of what was measured.

    Collectives make a link: its constants are fitted, and errors are shown on the
    fitted points and on sources that were held out. A table has the columns of
    `zeroplan backtest --collectives`; of a log, every run counts as one on the link.
    A topology makes a node. No file is overwritten.
    """
    own = Path(profiles) if profiles else None
    if (collectives is None) == (topology is None):
        raise UsageError("name what was measured: --collectives FILE or --topology FILE.")
    if topology is not None:
        from zeroplan.calibration import Told, describe_node  # noqa: PLC0415  # not for --help

        told = Told(
            gpu=gpu,
            intra_link=intra_link,
            node_link=node_link,
            nic_gbps=_rate("--nic-gbps", nic_gbps),
        )
        node = describe_node(topology, told=told, name=_name(output), profiles=own)
        _answer(node, _target(output, "nodes", node.node.id), as_json=as_json)
        return
    if link is None:
        raise UsageError("name the link that the collectives ran on with --link.")
    if not min_bytes.isdecimal():
        raise UsageError(f"--min-bytes {min_bytes!r}: write a whole number of bytes.")
    _target(output, "links", link)  # before the work, not after it
    from zeroplan.calibration import Choice, calibrate_collectives  # noqa: PLC0415  # not for --help

    choice = Choice(
        constants=_words(constants),
        collectives=_words(only),
        gpus=_words(gpus.lower()),
        min_bytes=int(min_bytes),
        equal_sources=equal_sources,
    )
    fitted = calibrate_collectives(
        str(collectives), link, choice=choice, name=_name(output), profiles=own
    )
    _answer(fitted, _target(output, "links", fitted.link.id), as_json=as_json)


def _answer(result: "Calibration | NodeProfile", target: Path | None, *, as_json: bool) -> None:
    """Write the profile, then say what is in it."""
    if target is not None:
        write_whole(target, result.to_toml(), "--output")
    if as_json:
        sys.stdout.write(f"{result.to_json()}\n")
        return
    from zeroplan.report.calibrate import calibration_text  # noqa: PLC0415  # not for --json
    from zeroplan.report.terminal import page  # noqa: PLC0415

    sys.stdout.write(calibration_text(result, page()))


def _name(output: str | None) -> str:
    """Return the id of a profile whose file is named."""
    path = Path(output or "")
    return path.stem if path.suffix == ".toml" else ""


def _target(output: str | None, group: str, profile_id: str) -> Path | None:
    """Return the new file: the one that is named, or the one of the id in a folder of profiles."""
    if output is None:
        return None
    target = Path(output)
    if target.suffix != ".toml":
        target = target / group / f"{profile_id}.toml"
    if target.exists():
        raise UsageError(f"--output {target}: there is such a file; name a new one.")
    return target


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
