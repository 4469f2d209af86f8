"""Hold predictions against one GPU in a few minutes: real kernels, real allocator, pretended ranks.

    python benchmarks/cuda_validation.py FOLDER

writes a record of every run into the folder (`zeroplan validate --from` and `calibrate` read them)
and a table to standard output. `--dry-run` runs the same list with tiny shapes on CPU tensors, and
`--dry-run fake` with the real shapes on tensors without data: neither needs a GPU.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from zeroplan.errors import ZeroplanError
from zeroplan.units import GIB
from zeroplan.validate import compare, recorded
from zeroplan.validate.measurement import RunRecord
from zeroplan.validate.validation import Difference, Validation

BUDGET_SECONDS = 480.0
LEAST_SECONDS = 25.0
"""A run is not begun with less: a process, torch, CUDA and a model of eight billion take that."""

TINY = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 256,
    "vocab_size": 512,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
"""What stands for every model in a dry run on the CPU."""


@dataclass(frozen=True)
class Case:
    """One run."""

    name: str
    gpus: int
    keys: dict[str, object]
    benches: bool = False


@dataclass
class Done:
    """What became of it."""

    name: str
    told: str
    answer: Validation | None = None
    seconds: float = 0.0
    rows: dict[str, Difference] = field(default_factory=dict)


def case(size: str, gpus: int, checkpointing: str, words: str = "", **keys: object) -> Case:
    """Name a run after what it is."""
    strategy = keys.setdefault("strategy", "fsdp2")
    given = {
        "model": {"1b": "llama-3.2-1b", "8b": "llama-3.1-8b"}[size],
        "sequence_length": 8192 if size == "1b" else 4096,
        "activation_checkpointing": checkpointing,
        **keys,
    }
    benches = bool(given.pop("benches", False))
    name = "-".join(filter(None, (size, str(strategy), str(gpus), checkpointing, words)))
    return Case(name=name, gpus=gpus, keys=given, benches=benches)


CASES = (
    case("1b", 8, "none", benches=True),
    case("8b", 8, "full", benches=True),
    case("1b", 8, "full", strategy="ddp"),
    case("8b", 64, "none"),
    case("8b", 512, "selective", "fused", optimizer_implementation="fused"),
    case("8b", 64, "full", "kept", reshard_after_forward=False),
    case("1b", 64, "full", "fused", optimizer_implementation="fused"),
    case("1b", 512, "selective"),
    case("8b", 64, "full", strategy="hsdp"),
    case("1b", 64, "none", "kept", reshard_after_forward=False),
    case("1b", 64, "full", "clipped", gradient_clipping=1.0),
)
"""Those that tell most come first: a budget that is too small leaves out the last."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path, help="where records are written")
    parser.add_argument("--budget", type=float, default=BUDGET_SECONDS, metavar="SECONDS")
    parser.add_argument("--dry-run", nargs="?", const="cpu", choices=("cpu", "fake"))
    parser.add_argument("--only", nargs="*", metavar="NAME", help="run these alone")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    cases = [each for each in CASES if not options.only or each.name in options.only]
    done = []
    for number, each in enumerate(cases, 1):
        left = options.budget - (time.monotonic() - begin)
        if left < LEAST_SECONDS:
            done.append(Done(each.name, f"skipped: {max(0.0, left):.0f} s left"))
            continue
        print(
            f"[{number}/{len(cases)}] {each.name}, {left:.0f} s left", file=sys.stderr, flush=True
        )
        start = time.monotonic()
        done.append(tried(each, options.folder, options.dry_run or "cuda", left))
        done[-1].seconds = time.monotonic() - start
    print(table(done))
    print(f"{time.monotonic() - begin:.0f} s; records in {options.folder}")
    ran = [each for each in done if each.answer is not None]
    failed = [each for each in done if each.answer is None and not each.told.startswith("skipped")]
    return 1 if failed else 0 if ran and all(holds(each.answer) for each in ran) else 5


def tried(each: Case, folder: Path, backend: str, limit: float) -> Done:
    """Run one and write its record, whatever becomes of it."""
    keys, pretends = dict(each.keys), backend != "fake"
    if backend == "cpu":
        tiny = folder / "tiny.json"
        tiny.write_text(json.dumps(TINY))
        keys |= {"model": str(tiny), "sequence_length": 64}
    try:
        record = recorded(
            backend=backend,
            timeout=limit,
            pretend_gpus=each.gpus if pretends else None,
            micro_benches=each.benches and pretends,
            tells=True,
            **keys | ({} if pretends else {"gpus": each.gpus}),
        )
        write(record, folder / f"{each.name}.json")
        answer = compare(record)
    except ZeroplanError as error:
        return Done(each.name, str(error))
    rows = {row.name: row for row in answer.differences}
    return Done(each.name, answer.record.outcome.kind, answer, rows=rows)


def holds(answer: Validation) -> bool:
    """Whether a prediction holds; of tiny shapes on a CPU, where a loss's scalars are a visible
    share of a shard, only collectives are asked for."""
    if answer.record.backend != "cpu":
        return answer.inside
    calls = [row for row in answer.differences if row.kind in ("calls", "message")]
    return bool(calls) and all(row.predicted == row.measured for row in calls)


def write(record: RunRecord, path: Path) -> None:
    """Write a record whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(f"{record.to_json()}\n")
    part.replace(path)


def table(done: list[Done]) -> str:
    """Return a line for each run: errors of what a GPU showed, or the largest of a dry run."""
    head = f"{'run':<28}{'allocated':>11}{'error':>8}{'reserved':>10}{'band':>5}"
    lines = [f"{head}{'compute':>9}{'band':>5}{'wall':>6}"]
    for each in done:
        if each.answer is None:
            lines.append(f"{each.name:<28}  {each.told}")
            continue
        allocated, reserved, compute = (
            each.rows.get(name) for name in ("peak allocated", "reserved", "compute")
        )
        largest = each.answer.largest if each.answer.truth else None
        shown = allocated or largest
        size = f"{shown.measured / GIB:.2f} GiB" if allocated else ""
        lines.append(
            f"{each.name:<28}{size:>11}{percent(shown):>8}{percent(reserved):>10}{band(reserved):>5}"
            f"{percent(compute):>9}{band(compute):>5}{each.seconds:>5.0f}s"
        )
    return "\n".join(lines)


def percent(row: Difference | None) -> str:
    """Return the error of a prediction."""
    error = row.error_fraction if row else None
    return "-" if error is None else f"{error * 100:+.2f}%"


def band(row: Difference | None) -> str:
    """Return whether what was measured lies in the prediction's band."""
    return {True: "in", False: "out", None: "-"}[row.in_band if row else None]


if __name__ == "__main__":
    sys.exit(main())
