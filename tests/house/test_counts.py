"""What the pages say of the tests, counts and shares, is what the records and tables hold."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any, Final

from zeroplan.hardware import load_catalogue
from zeroplan.spec.presets import list_presets

HOME: Final = Path(__file__).parents[2]
TESTS: Final = HOME / "tests"
README: Final = (HOME / "README.md").read_text()
WRONG: Final = (HOME / "docs" / "how-it-is-wrong.md").read_text()
ACCURACY: Final = (HOME / "docs" / "accuracy.md").read_text()
NUMERALS: Final = {"five": 5, "ten": 10}


def _steps(*names: str) -> list[dict[str, Any]]:
    return [step for name in names for step in tomllib.loads((TESTS / name).read_text())["step"]]


def _cases(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((TESTS / "schedule" / name).read_text())["cases"]
    return cases


def _told(page: str, sentence: str) -> list[int]:
    """Return the numbers at the `#` of a sentence of the page."""
    found = re.search(re.escape(sentence).replace("\\#", "([0-9.,]+|[a-z]+)"), page)
    assert found, sentence
    return [NUMERALS.get(word) or int(word.replace(",", "")) for word in found.groups()]


def test_steps_of_fsdp2() -> None:
    steps = _steps("memory/fsdp2_peaks.toml")
    offloaded = sum("offload_parameters" in step["keys"] for step in steps)
    told = "# FSDP2 and HSDP steps on fake tensors, # to # GPUs, # of them offloaded"
    ranks = [step["gpus"] for step in steps]
    assert _told(README, told) == [len(steps), min(ranks), max(ranks), offloaded]
    assert _told(WRONG, "# real steps of PyTorch 2.13 on fake tensors with a fake") == [len(steps)]


def test_steps_of_the_others_under_pytorch() -> None:
    files = ("fsdp1_measured.toml", "ddp_steps.toml", "torch_zero1_measured.toml")
    steps = len(_steps(*(f"schedule/{file}" for file in files)))
    assert _told(README, "# steps of FSDP1, DDP and ZeroRedundancyOptimizer on real processes") == [
        steps
    ]
    assert _told(WRONG, "# recorded steps of real processes (gloo)") == [steps]


def test_steps_of_partly_trained_models() -> None:
    steps = len(_cases("tuned_measured.json"))
    assert _told(README, "# steps with LoRA, QLoRA or frozen parts") == [steps]
    assert _told(WRONG, "# real steps of PyTorch 2.13 on fake tensors, with adapters") == [steps]


def test_steps_of_deepspeed() -> None:
    measured, offloaded = _cases("deepspeed_measured.json"), _cases("deepspeed_offloaded.json")
    tuned = sum("tuning" in case for case in measured)
    keys = ("zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_gradients")
    plus = sum(any(key in case["deepspeed"] for key in keys) for case in measured)
    assert _told(README, "# steps of DeepSpeed 0.19.8") == [len(measured) + len(offloaded)]
    told = "# steps of DeepSpeed 0.19.8 on two to four CPU processes, # of them with LoRA"
    assert _told(WRONG, told) == [len(measured), tuned]
    assert _told(WRONG, "# of these steps; the kernels of quantised weights") == [plus]
    assert _told(WRONG, "# steps of the same on one or two processes") == [len(offloaded)]


def test_models_whose_parameters_are_counted() -> None:
    told = "classes for # presets"
    assert _told(README, told) == _told(WRONG, told) == [len(list_presets())]


def test_blocks_that_were_compared() -> None:
    models = json.loads((TESTS / "workload" / "published_blocks.json").read_text())["models"]
    changes = (HOME / "CHANGELOG.md").read_text()
    assert _told(WRONG, "# classes of transformers 5.24 on fake tensors") == [len(models)]
    assert _told(changes, "equal to transformers' classes in # families") == [len(models)]


def test_reports_and_profiles() -> None:
    reports = tomllib.loads((TESTS / "cases" / "reports.toml").read_text())["report"]
    assert _told(README, "what # public reports say") == [len(reports)]
    catalogue = load_catalogue()
    ids = (catalogue.gpu_ids(), catalogue.link_ids(), catalogue.node_ids())
    told = _told((HOME / "CHANGELOG.md").read_text(), "# GPUs, # links and # node types")
    assert told == [len(names) for names in ids]


def test_errors_of_step_times_are_those_of_the_table() -> None:
    """The table of accuracy.md is filled by docs/accuracy.py; other pages sum it up."""
    table = ACCURACY.partition("<!-- steps -->")[2].partition("<!-- end -->")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[3:]]
    *sources, every = [row for row in rows if row]
    medians = sorted(int(float(row[3]) + 0.5) for row in sources)
    median, inside = int(float(every[3]) + 0.5), int(float(every[6]) + 0.5)
    told = "# published tables of runs, each predicted with constants that were fitted without it"
    assert _told(README, told) == [len(sources)]
    told = "median errors between # and # %, their median # %; the band holds # % of the runs"
    assert _told(README, told) == [medians[0], medians[-1], median, inside]
    assert _told(WRONG, "median of the medians # %, # % inside the band") == [median, inside]
