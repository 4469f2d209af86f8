"""What commands write is whole or not there, and takes the place of nothing but a file."""

import os
import stat
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest

from zeroplan.cli.files import refuse_unwritable, write_by, write_whole
from zeroplan.errors import UsageError

with_pipes = pytest.mark.skipif(sys.platform == "win32", reason="has no named pipes")


@pytest.fixture
def pipe(tmp_path: Path) -> tuple[Path, Callable[[], str]]:
    """Give a named pipe, and a function that waits for what is read from it."""
    path, read = tmp_path / "pipe", Queue[str]()
    os.mkfifo(path)
    Thread(target=lambda: read.put(path.read_text(encoding="utf-8")), daemon=True).start()
    return path, partial(read.get, timeout=10)


@with_pipes
@pytest.mark.parametrize("linked", [False, True], ids=["itself", "by a link"])
def test_a_pipe_is_written_and_stays_one(
    pipe: tuple[Path, Callable[[], str]], linked: bool
) -> None:
    path, read = pipe
    named = path.with_name("link") if linked else path
    if linked:
        named.symlink_to(path)
    before = set(path.parent.iterdir())
    refuse_unwritable(named, "--csv")
    write_whole(named, "text", "--csv")
    assert read() == "text"
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert named.is_symlink() is linked
    assert set(path.parent.iterdir()) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_device_that_is_full_says_so_and_stays(tmp_path: Path) -> None:
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    with pytest.raises(UsageError, match=r"--csv .*full: No space left on device\."):
        write_whole(link, "text", "--csv")
    assert stat.S_ISCHR(link.stat().st_mode)
    assert link.is_symlink()


@pytest.mark.parametrize("there", [True, False], ids=["there", "not yet there"])
def test_a_link_to_a_file_stays_one(tmp_path: Path, there: bool) -> None:
    file, link = tmp_path / "of" / "file", tmp_path / "link"
    file.parent.mkdir()
    link.symlink_to(file)
    if there:
        file.write_text("before", encoding="utf-8")
    refuse_unwritable(link, "--csv")
    write_whole(link, "text", "--csv")
    assert link.is_symlink()
    assert file.read_text(encoding="utf-8") == "text"
    assert list(file.parent.iterdir()) == [file]


def test_an_interrupted_file_is_as_it_was_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("before", encoding="utf-8")

    def half(part: Path) -> None:
        part.write_text("half", encoding="utf-8")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_by(file, half, "--csv")
    told = f"zeroplan: interrupted: --csv {file}: nothing was written.\n"
    assert capsys.readouterr().err == told
    assert file.read_text(encoding="utf-8") == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_name_that_is_too_long_is_told_early(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--csv .*: File name too long\."):
        refuse_unwritable(tmp_path / ("x" * 300), "--csv")
