"""The command line: it parses, asks the library and hands the answer to `report`."""

import atexit
import errno
import gc
import os
import signal
import sys
from typing import Annotated, Any, Final

import typer

from zeroplan.cli.light import AllCommands
from zeroplan.errors import UsageError, ZeroplanError

__all__ = ["app", "main"]

DEBUG: Final = "--debug"

COMMAND_LINE_ERROR: Final[Any] = typer.BadParameter.mro()[1]
"""Click's `UsageError`, which typer does not export."""

UNWRITABLE: Final = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF)
"""Errors of standard output; those of a file are told where it is written."""

COLLECT_AFTER: Final = 200_000
"""Objects between two looks for cyclic garbage: a quick answer ends before the first. [count]"""

EXIT_CODES: Final = (
    "Exit codes: 0 answered, 1 an unexpected error (a bug, with its traceback, or a run that "
    "failed, in a line), 2 usage, 3 a spec, model file or profile is wrong, "
    "4 nothing fits (still an answer), 5 outside the tolerance, 6 an optional part is missing, "
    f"130 interrupted. {DEBUG}, anywhere on the line, shows the traceback of an error."
)

app = typer.Typer(
    cls=AllCommands,
    epilog=EXIT_CODES,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(context: typer.Context, asked: bool) -> None:
    if asked:
        from zeroplan.cli.about import version_text  # noqa: PLC0415  # not for commands

        sys.stdout.write(version_text(context.params.get("profiles")))
        raise typer.Exit


def _show_citation(asked: bool) -> None:
    if asked:
        from zeroplan.cli.about import citation_text  # noqa: PLC0415  # not for commands

        sys.stdout.write(citation_text())
        raise typer.Exit


@app.callback()
def zeroplan(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version, and that of the hardware profiles.",
            callback=_show_version,
        ),
    ] = False,
    cite: Annotated[
        bool,
        typer.Option(
            "--cite", help="Show how to cite zeroplan, as BibTeX.", callback=_show_citation
        ),
    ] = False,
    profiles: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Folder whose hardware profiles come before the shipped ones.",
            is_eager=True,  # known when the version is shown
        ),
    ] = None,
) -> None:
    """Plan GPU memory, communication and step time of a training run before renting the GPUs."""
    del version, cite  # shown before this is called
    if profiles is not None:
        from zeroplan.hardware.catalogue import PROFILES_VARIABLE  # noqa: PLC0415

        os.environ[PROFILES_VARIABLE] = profiles  # for the command that follows, and its workers


def _belonging(error: Any) -> str:
    """Say which other commands have the option that this one lacks; empty where none has."""
    if not hasattr(error, "possibilities"):  # only an unknown option has them
        return ""
    from zeroplan.cli.elsewhere import told_owners  # noqa: PLC0415  # imports every command

    return told_owners(error.option_name, app)


def _run(arguments: list[str]) -> Any:
    """Run a command until all that it says is written, and return its exit code."""
    if sys.stdout is None:
        raise UsageError("standard output is closed: send it to a file, or to /dev/null.")
    code = app(arguments, prog_name="zeroplan", standalone_mode=False)
    sys.stdout.flush()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interrupt now has nothing to break off
    return code


def _unwritten(error: OSError) -> int:
    """Give up standard output; that nobody reads on, as behind `| head`, is no news."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still in memory
    if error.errno == errno.EPIPE:
        return 1
    sys.stderr.write(f"zeroplan: standard output: {error.strerror}: send it elsewhere.\n")
    return UsageError.exit_code


def main() -> None:
    """Run the command line; the exit code says how it went (`zeroplan --help` lists them)."""
    gc.set_threshold(COLLECT_AFTER)
    atexit.register(gc.freeze)  # an interpreter that ends looks three times, for 10 ms each
    arguments = [argument for argument in sys.argv[1:] if argument != DEBUG] or ["--help"]
    try:
        sys.exit(_run(arguments))
    except COMMAND_LINE_ERROR as error:
        command = getattr(error.ctx, "command_path", "zeroplan")
        text = _belonging(error) or error.format_message()
        sys.stderr.write(f"zeroplan: {text}{'' if text.endswith('.') else '.'} ")
        sys.stderr.write(f"`{command} --help` lists the options.\n")
        sys.exit(error.exit_code)
    except ZeroplanError as error:
        if DEBUG in sys.argv:
            raise
        sys.stderr.write(f"zeroplan: {error}\n")
        sys.exit(error.exit_code)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in UNWRITABLE:
            sys.exit(_unwritten(error))
        sys.stderr.write("zeroplan: this is a bug; please report it with the lines below.\n")
        raise
