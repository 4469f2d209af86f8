"""What people reported in public, held against the estimate of what they ran (reports.toml)."""

import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from operator import attrgetter, gt, lt
from pathlib import Path
from typing import Any

import pytest

from zeroplan.comm.collectives import collective_seconds
from zeroplan.errors import SpecError
from zeroplan.estimation.answer import answer, plan_for
from zeroplan.estimation.make_it_fit import ways
from zeroplan.estimation.record import Memory, StrategyEstimate
from zeroplan.estimation.resolve import Question, resolve
from zeroplan.estimation.why_slow import reasons
from zeroplan.schedule import script
from zeroplan.schedule.events import Collective
from zeroplan.sharding.groups import contiguous
from zeroplan.spec.architecture import Attention
from zeroplan.spec.models import architecture_of
from zeroplan.spec.toml import load_spec
from zeroplan.workload.count import count_flop

Keys = dict[str, Any]

FILE = tomllib.loads((Path(__file__).parent / "reports.toml").read_text(encoding="utf-8"))
REPORTS: list[Keys] = FILE["report"]
UNITS = {"": 1, "M": 1e6, "T": 1e12, "GB": 1e9, "MiB": 2**20, "GiB": 2**30}

pytestmark = pytest.mark.published


def checks(kind: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for every check of a kind."""
    found = [
        pytest.param(
            {**check, "asked": {**report.get("asked", {}), **check.get("asked", {})}}, id=name
        )
        for report in REPORTS
        for name, check in _numbered(report)
        if kind in check
    ]
    return pytest.mark.parametrize("check", found)


def _numbered(report: Keys) -> Iterator[tuple[str, Keys]]:
    for number, check in enumerate(report.get("check", ()), 1):
        yield f"{report['id']}.{number}", check


def question(asked: Keys) -> Question:
    """Put a question; a model of reports.toml stands in the place of a preset."""
    name = asked.get("model", "")
    if name not in FILE["model"]:
        return resolve(load_spec(**asked))
    architecture = architecture_of(FILE["model"][name], name, name)
    return resolve(load_spec(**asked), architecture=architecture)


def quantity(text: str) -> float:
    """Read "3.14 GiB"."""
    number, _, unit = text.partition(" ")
    return float(number) * UNITS[unit]


def only(asked: Question) -> StrategyEstimate:
    (found,) = answer(asked).estimates
    return found


def states_bytes(memory: Memory) -> int:
    return memory.parameters_bytes + memory.gradients_bytes + memory.optimizer_bytes


def of_memory(asked: Question, name: str) -> float:
    """Return a figure of an answer's memory."""
    memory = only(asked).memory
    return states_bytes(memory) if name == "states_bytes" else attrgetter(name)(memory)


def resident_bytes(asked: Question) -> float:
    """What is allocated between steps."""
    plan = plan_for(asked, asked.strategies[0], {})
    return sum(change.bytes for change in script(plan).resident)


def parameters(asked: Question) -> float:
    plan = plan_for(asked, asked.strategies[0], {})
    return sum(parameter.elements * times for parameter, times in plan.parameters)


def model_flop(asked: Question) -> float:
    """Three forward passes over all tokens of a micro-step, masked scores included."""
    workload = plan_for(asked, asked.strategies[0], {}).workload
    return 3 * count_flop(workload).forward_flop * workload.batch.tokens


def utilization(asked: Question) -> float:
    workload = plan_for(asked, asked.strategies[0], {}).workload
    peak = asked.gpu.peak_flop_per_second["bf16"].value
    return 3 * count_flop(workload).forward_flop * 9600 / peak


def node_wire_bytes(asked: Question) -> float:
    """What leaves one node."""
    return only(asked).communication.inter_node_wire_bytes * 8


def wire_bytes(asked: Question) -> float:
    """What a GPU sends in a step."""
    return only(asked).communication.wire_bytes


def attention(asked: Question) -> Attention:
    block = asked.architecture.stacks[0].blocks[0]
    return next(s.component for s in block.sublayers if isinstance(s.component, Attention))


def offload_seconds(asked: Question) -> float:
    return only(asked).time.offload_seconds or 0.0


def step_seconds(asked: Question) -> float:
    return only(asked).time.step_seconds or 0.0


def tokens_per_second_per_gpu(asked: Question) -> float:
    return only(asked).time.tokens_per_second_per_gpu or 0.0


def all_reduce_bus_bytes_per_second(asked: Question) -> float:
    """What nccl-tests call the bus bandwidth of an all-reduce of 8 GiB over all GPUs."""
    ranks, size = asked.run.cluster.gpus, 8 * 2**30
    world = contiguous("world", ranks, asked.wires.gpus_per_node)
    call = Collective(name="all_reduce", group=world, input_bytes=size, output_bytes=size)
    return float(call.wire_bytes / collective_seconds(call, asked.wires))


def query_width(asked: Question) -> float:
    return attention(asked).heads * attention(asked).head_dim


def key_value_width(asked: Question) -> float:
    return attention(asked).kv_heads * attention(asked).head_dim


def key_value_bytes(asked: Question) -> float:
    """fp16 keys and values of 8192 positions in every block."""
    return 2 * 2 * 8192 * len(asked.architecture.stacks[0].blocks) * key_value_width(asked)


FIGURES: dict[str, Callable[[Question], float]] = {
    "all_reduce_bus_bytes_per_second": all_reduce_bus_bytes_per_second,
    "key_value_bytes_at_8192": key_value_bytes,
    "key_value_width": key_value_width,
    "model_flop": model_flop,
    "node_wire_bytes": node_wire_bytes,
    "offload_seconds": offload_seconds,
    "parameters": parameters,
    "query_width": query_width,
    "resident_bytes": resident_bytes,
    "step_seconds": step_seconds,
    "tokens_per_second_per_gpu": tokens_per_second_per_gpu,
    "wire_bytes": wire_bytes,
    "utilization_at_9600_tokens_per_second": utilization,
}


def figure(asked: Keys, name: str) -> float:
    put = question(asked)
    return FIGURES[name](put) if name in FIGURES else of_memory(put, name)


@checks("tensor")
def test_what_could_not_be_allocated_is_one_allocation_of_the_step(check: Keys) -> None:
    asked = question(check["asked"])
    step = script(plan_for(asked, asked.strategies[0], {}))
    sizes = {change.bytes for event, _ in step.calls() for change in event.changes}
    wanted = quantity(check["tensor"])
    assert min(abs(size - wanted) for size in sizes) <= check["within"] * wanted


@checks("figure")
def test_the_figure_is_what_the_report_says(check: Keys) -> None:
    found = figure(check["asked"], check["figure"])
    if "minus" in check:
        found -= figure({**check["asked"], **check["minus"]}, check["figure"])
    if "ratio" in check:
        found /= figure({**check["asked"], **check["ratio"]}, check["figure"])
    if "is" in check:
        assert found == pytest.approx(quantity(check["is"]), rel=check.get("within", 0))
    else:
        compare, bound = (lt, "under") if "under" in check else (gt, "over")
        assert compare(found, quantity(check[bound]))


@checks("exceeds")
def test_what_exceeds_the_gpu_by_itself_is_no_fit(check: Keys) -> None:
    asked = question(check["asked"])
    assert of_memory(asked, check["exceeds"]) > asked.gpu.usable_bytes.value
    assert only(asked).verdict == "does_not_fit"


@checks("below")
def test_what_is_below_the_gpu_is_not_what_fails(check: Keys) -> None:
    asked = question(check["asked"])
    assert of_memory(asked, check["below"]) <= asked.gpu.usable_bytes.value


@checks("verdict")
def test_the_verdict_is_what_was_seen(check: Keys) -> None:
    assert only(question(check["asked"])).verdict in check["verdict"]


@checks("moment")
def test_memory_runs_out_at_the_moment_that_was_seen(check: Keys) -> None:
    assert only(question(check["asked"])).memory.peak_moment == check["moment"]


@checks("cause")
def test_the_cause_of_a_slow_step_and_the_way_out_are_those_of_the_report(check: Keys) -> None:
    told = reasons(question(check["asked"]))
    assert told.cause == check["cause"]
    if "advice" in check:
        assert check["advice"] in [each.change for each in told.changes]


@checks("fix")
def test_what_made_it_fit_is_among_what_makes_it_fit(check: Keys) -> None:
    told = ways(question(check["asked"]))
    assert not told.fits
    assert check["fix"] in [each.change for each in told.changes]


@checks("refused")
def test_what_cannot_be_is_refused_in_plain_words(check: Keys) -> None:
    with pytest.raises(SpecError) as raised:
        answer(question(check["asked"]))
    assert check["refused"] in str(raised.value)


@pytest.mark.parametrize("report", REPORTS, ids=[report["id"] for report in REPORTS])
def test_a_report_is_decided_by_checks_or_says_why_not(report: Keys) -> None:
    decided = report["outcome"] in ("decided", "in part")
    assert decided == bool(report.get("check"))
    assert (report["outcome"] == "decided") == ("reason" not in report)


def test_the_page_of_cases_shows_these_reports() -> None:
    """`python docs/cases.py` rewrites it."""
    check = [sys.executable, str(Path(__file__).parents[2] / "docs" / "cases.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""
