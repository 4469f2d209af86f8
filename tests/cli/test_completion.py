"""What a shell offers: through the variables by which bash and zsh ask."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from zeroplan.cli.light import COMMANDS
from zeroplan.hardware import load_catalogue
from zeroplan.spec.presets import list_presets

HEAVY = ("matplotlib", "numpy", "pandas", "pydantic", "torch")


def _asked(
    shell: str, line: str, unwanted: tuple[str, ...] = HEAVY
) -> subprocess.CompletedProcess[str]:
    """Ask as the shell does when the tab key is hit at the end of a line."""
    words = line.split(" ")
    told = {
        "_ZEROPLAN_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
    }
    code = (
        "import sys\nfrom zeroplan.cli import main\ntry: main()\n"
        f"except SystemExit: print(set(sys.modules) & set({unwanted!r}), file=sys.stderr)"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        check=False,
    )


def _offered(line: str) -> list[str]:
    done = _asked("bash", line)
    assert done.stderr == "set()\n"  # nothing is said, and nothing heavy is loaded
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("zeroplan ", [*COMMANDS]),
        ("zeroplan --ver", ["--version"]),
        ("zeroplan es", ["estimate"]),
        ("zeroplan estimate --micro-b", ["--micro-batch-size"]),
        ("zeroplan estimate --strategy fsd", ["fsdp1", "fsdp2"]),
        ("zeroplan estimate --strategy zero1,z", ["zero1,zero0", "zero1,zero2", "zero1,zero3"]),
        ("zeroplan estimate --gpu h100-sxm5", ["h100-sxm5-80gb"]),
        ("zeroplan estimate --gpu a10,h100-sxm5", ["a10,h100-sxm5-80gb"]),
        ("zeroplan estimate --node dgx-a", ["dgx-a100"]),
        ("zeroplan estimate --link ib-ndr", ["ib-ndr400"]),
        ("zeroplan plan -m llama-3.1-7", ["llama-3.1-70b"]),
        ("zeroplan estimate --compile t", ["true"]),
        ("zeroplan explain --strategy zero1,z", []),
        ("zeroplan inspect llama-3.1-7", ["llama-3.1-70b"]),
        ("zeroplan plot mem", ["memory", "memory-timeline"]),
        ("zeroplan plan --objective f", ["fastest", "fewest-gpus"]),
        ("zeroplan hardware show h100-sxm5", ["h100-sxm5-80gb"]),
        ("zeroplan hardware di", ["diff"]),
        ("zeroplan export --format acc", ["accelerate"]),
        ("zeroplan import --format train", ["training-args"]),
        ("zeroplan validate --backend c", ["cpu", "cuda"]),
        ("zeroplan calibrate --node-link ro", ["roce", "roce-100", "roce-200", "roce-400"]),
        ("zeroplan no-such-command --strat", []),
        ("zeroplan estimate --profiles nowhere --gpu h", []),
    ],
)
def test_bash_is_offered(line: str, expected: list[str]) -> None:
    assert _offered(line) == expected


def test_commands_are_offered_without_importing_them() -> None:
    modules = tuple(f"zeroplan.cli.{name}" for name in COMMANDS)
    done = _asked("zsh", "zeroplan ", modules)
    assert done.stdout == f"_arguments '*: :(({_quoted(COMMANDS)}))'\n"
    assert done.stderr == "set()\n"


def _quoted(words: Iterable[str]) -> str:
    return "\n".join(f'"{word}"' for word in words)


def test_all_presets_gpus_nodes_and_links_are_offered() -> None:
    catalogue = load_catalogue()
    assert _offered("zeroplan estimate --model ") == [*list_presets()]
    assert _offered("zeroplan estimate --gpu ") == [*catalogue.gpu_ids()]
    assert _offered("zeroplan estimate --node ") == [*catalogue.node_ids()]
    aliases = ["ib", "roce", "efa", "ethernet", "nvlink"]
    assert _offered("zeroplan estimate --link ") == [*aliases, *catalogue.link_ids()]


def test_a_gpu_of_ones_own_is_offered(tmp_path: Path) -> None:
    (tmp_path / "gpus").mkdir()
    (tmp_path / "gpus" / "my-gpu.toml").touch()
    assert _offered(f"zeroplan estimate --profiles {tmp_path} --gpu my") == ["my-gpu"]


def test_zsh_is_offered_the_same_and_files_where_nothing_is_known() -> None:
    links = _asked("zsh", "zeroplan estimate --link ib-ndr400,ib-hdr").stdout
    assert links == "_arguments '*: :((\"ib-ndr400,ib-hdr200\"))'\n"
    assert _asked("zsh", "zeroplan estimate --spec run").stdout == "_files\n"


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_that_a_shell_loads_asks_zeroplan(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    run = [sys.executable, "-c", "from zeroplan.cli import main; main()"]
    shown = subprocess.run(
        [*run, "--show-completion", shell], capture_output=True, text=True, check=True
    ).stdout
    assert f"_ZEROPLAN_COMPLETE=complete_{shell} " in shown
    subprocess.run(
        [*run, "--install-completion", shell], capture_output=True, text=True, check=True
    )
    written = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert any("_ZEROPLAN_COMPLETE" in text for text in written)
