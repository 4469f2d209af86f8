"""Every command that a page shows is run here, or its words are checked; console blocks are made."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from typer.main import get_command

from zeroplan.cli import app
from zeroplan.cli.light import COMMANDS

HOME: Final = Path(__file__).parents[2]
PAGES: Final = [HOME / "README.md", *sorted(HOME.glob("docs/*.md"))]
COPIES: Final = {
    "nccl.csv": "comm/sweeps.csv",
    "all_gather.log": "calibration/logs/open_mpi_5_tags_four_nodes.log",
    "topo.txt": "calibration/topologies/hgx_h100.txt",
    "train.log": "backtesting/logs/torchtitan_colours.log",
    "trainer_state.json": "backtesting/logs/trainer_state_whole.json",
    "run-1.json": "calibration/records/run-1.json",
    "run-2.json": "calibration/records/run-2.json",
    "8b.json": "calibration/records/run-1.json",
}
"""What a user has, by the name that the pages give it, and a file of the tests like it."""
TEXTS: Final = {
    "run.toml": 'schema_version = 1\n[model]\nsource = "llama-3.1-8b"\n'
    '[training]\nmicro_batch_size = 4\n[sharding]\nstrategy = "fsdp2"\n[cluster]\ngpus = 8\n',
    "ds_config.json": '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}',
    "accelerate.yaml": "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n"
    "num_processes: 8\nmixed_precision: bf16\n",
    "args.json": '{"bf16": true, "per_device_train_batch_size": 1}',
    "llama3_8b.toml": '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 8192\n',
}
SAID: Final = re.compile(r"zeroplan ((?:" + "|".join(COMMANDS) + r")\b[^`\n#|]*)")


def _blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def _commands(page: Path, *, validate: bool) -> list[str]:
    """Return the commands of a page's shell blocks: those of `validate`, or all others."""
    text = "".join(_blocks(page, "sh")).replace("\\\n", " ")
    found = (line.partition("#")[0].strip() for line in text.splitlines())
    mine = [line for line in found if line.startswith("zeroplan ")]
    return [line for line in mine if line.startswith("zeroplan validate") == validate]


def _users_folder(folder: Path) -> Path:
    """Fill a folder with the files that the pages speak of."""
    for name, source in COPIES.items():
        shutil.copy(HOME / "tests" / source, folder / name)
    preset = json.loads((HOME / "zeroplan/data/presets/llama-3.1-8b.json").read_text())
    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512}
    config = preset["config"] | small | heads
    for name, text in {**TEXTS, "config.json": json.dumps(config)}.items():
        (folder / name).write_text(text)
    return folder


def _exit_code(command: str, folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", "from zeroplan.cli import main; main()", *shlex.split(command)[1:]],
        cwd=folder,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


WITH: Final = [page for page in PAGES if _commands(page, validate=False)]


@pytest.mark.parametrize("page", WITH, ids=lambda page: page.stem)
def test_the_commands_of_the_page_answer_one_after_the_other(page: Path, tmp_path: Path) -> None:
    folder = _users_folder(tmp_path)
    for command in _commands(page, validate=False):
        code, complaint = _exit_code(command, folder)
        assert code == 0, f"{command}\n{complaint}"


@pytest.mark.torch
def test_the_commands_that_validate_answer_or_say_that_a_gpu_is_missing(tmp_path: Path) -> None:
    folder = _users_folder(tmp_path)
    for command in _commands(HOME / "docs/validate.md", validate=True):
        if "--profiles" in command:  # behind the `calibrate` that fills the folder
            (folder / "own").mkdir()
        code, complaint = _exit_code(command, folder)
        allowed = {6} if "cuda" in command else {0, 5} if "--from" in command else {0}
        assert code in allowed, f"{command}\n{complaint}"


def test_every_flag_that_a_page_names_beside_a_command_is_one_of_the_commands() -> None:
    root = get_command(app)
    known = {}
    for name in COMMANDS:
        command = root.get_command(None, name)  # type: ignore[attr-defined]  # of a group
        parts = [command, *getattr(command, "commands", {}).values()]
        options = {word for part in parts for each in part.params for word in each.opts}
        known[name] = options | {word.replace("--", "--no-", 1) for word in options}
    checked, wrong = 0, []
    for page in [*PAGES, HOME / "CONTRIBUTING.md"]:
        for said in SAID.findall(page.read_text(encoding="utf-8").replace("\\\n", " ")):
            name = said.split()[0]
            flags = re.findall(r"(?<![\w-])--[a-z][\w-]*", said)
            checked += len(flags)
            beyond = {*known[name], "--help", "--debug"}
            wrong += [f"{page.name}: {name} {flag}" for flag in flags if flag not in beyond]
    assert checked > 0
    assert wrong == []
