"""Train across a slow link for real and lay the measured step beside the predicted one.

    python benchmarks/slow_link.py [--rates 1gbit,300mbit,100mbit] [--short] [--output FILE.json]
                                   [--profiles DIR]

Two ranks of an FSDP2 and of a DDP job meet over gloo through a veth pair that `tc` slows down
(`veth.py`; root and Linux). At each rate the collectives are timed over message sizes on that very
link, `zeroplan calibrate` makes a profile of them, and with it the same job is predicted: what both
ranks take at once where collectives return at once, and the collectives of the estimate. Nothing is
fitted to a step. Exit code 6 says what a machine lacks.
"""

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import mean, median
from typing import Any

from gloo_jobs import Round, rows, run_ranks, write_table
from veth import INTERFACE, NoLabError, slow_link

from zeroplan import estimate
from zeroplan.calibration import Calibration, calibrate_collectives
from zeroplan.calibration.write import profile_toml
from zeroplan.estimation.record import StrategyEstimate
from zeroplan.hardware import Quantity, load_catalogue
from zeroplan.records import replace
from zeroplan.rows import plain

RATES = ("1gbit", "300mbit", "100mbit")
BITS = {"gbit": 10**9, "mbit": 10**6}
STRATEGIES = ("fsdp2", "ddp")
LACKING = 6
"""Exit code."""

MODEL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 704,
    "vocab_size": 4000,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
KEYS = {
    "gpus": 2,
    "gpus_per_node": 1,
    "precision": "fp32",
    "sequence_length": 128,
    "activation_checkpointing": "none",
}
WHOLE = {"sizes": [2**n for n in range(18, 25)], "times": 3, "rounds": 3, "limit_seconds": 900}
SHORT = {"sizes": [2**18, 2**20, 2**22, 2**23], "times": 2, "rounds": 1, "limit_seconds": 240}


def main() -> None:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="zeroplan-") as folder:
        profiles = Path(arguments.profiles or folder)
        (profiles / "links").mkdir(parents=True, exist_ok=True)
        try:
            runs = [
                at(rate, SHORT if arguments.short else WHOLE, profiles)
                for rate in arguments.rates.split(",")
            ]
        except NoLabError as lacking:
            print(lacking, file=sys.stderr)
            sys.exit(LACKING)
    record = {**_conditions(), "runs": runs}
    if arguments.output:
        Path(arguments.output).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rates", default=",".join(RATES), help="as tc writes them")
    parser.add_argument("--short", action="store_true", help="fewer sizes and steps")
    parser.add_argument("--output", help="where the record goes")
    parser.add_argument("--profiles", help="folder that keeps the links' profiles")
    return parser.parse_args()


def at(rate: str, effort: dict[str, Any], profiles: Path) -> dict[str, Any]:
    """Measure and predict the jobs at one rate."""
    with tempfile.TemporaryDirectory(prefix="zeroplan-") as name:
        folder = Path(name)
        model = folder / "config.json"
        model.write_text(json.dumps(MODEL))
        jobs = {each: {**KEYS, "model": str(model), "strategy": each} for each in STRATEGIES}
        with slow_link(rate) as ends:
            task = {"interface": INTERFACE, "jobs": jobs, **effort}
            ranks = run_ranks(ends, task, folder)
        fitted = calibrated(rate, ranks[0], folder)
        (profiles / "links" / f"{fitted.link.id}.toml").write_text(fitted.to_toml())
        found = [
            compared(
                each,
                ranks,
                estimate(
                    **jobs[each], link=fitted.link.id, backend="gloo", profiles=profiles
                ).estimates[0],
            )
            for each in STRATEGIES
        ]
    _show(rate, fitted, found)
    return {"rate": rate, "link": _figures(fitted), "jobs": found}


def calibrated(rate: str, rounds: list[Round], folder: Path) -> Calibration:
    """Fit a profile of the link to its collectives, with the project's own machinery."""
    line = int(rate[:-4]) * BITS[rate[-4:]] / 8
    told = Quantity(value=line, unit="B/s", kind="measured", source="calibration", note="tc tbf")
    name, table = f"veth-{rate}", folder / f"veth-{rate}.csv"
    start = replace(
        load_catalogue().link("ethernet-1g"),
        id=name,
        name=f"veth pair that tc tbf shapes to {rate}",
        revision=1,
        bandwidth_bytes_per_second=told,
    )
    (folder / "links").mkdir()
    (folder / "links" / f"{name}.toml").write_text(profile_toml(start))
    shape = {"fabric": "ethernet", "n_gpus": 2, "n_nodes": 2, "gpus_per_node": 1}
    source = "benchmarks/slow_link.py"
    write_table(table, rows(rounds, name, source, inter_link=name, **shape))
    return calibrate_collectives(table, name, profiles=folder)


def compared(
    strategy: str, ranks: Sequence[Sequence[Round]], answer: StrategyEstimate
) -> dict[str, Any]:
    """Lay a job beside its estimate. [s], [B], [1]"""
    step, compute = best(ranks, strategy), best(ranks, f"{strategy} alone")
    sending = answer.time.communication_seconds or 0.0
    predicted = compute + sending
    payload = mean(found[strategy]["payload_bytes"] for rounds in ranks for found in rounds)
    return {
        "strategy": strategy,
        "step_seconds": step,
        "compute_seconds": compute,
        "predicted_seconds": predicted,
        "error": predicted / step - 1,
        "waiting": 1 - compute / step,
        "predicted_waiting": sending / predicted,
        "payload_bytes": payload,
        "predicted_bytes": answer.communication.wire_bytes,
        "calls": ranks[0][0][strategy]["collectives"],
        "predicted_calls": [_call(each) for each in plain(answer.communication.collectives)],
    }


def best(ranks: Sequence[Sequence[Round]], name: str) -> float:
    """Return the best of several rounds: the median step of the slowest rank. [s]"""
    rounds = zip(*ranks, strict=True)
    return min(max(median(rank[name]["seconds"]) for rank in same) for same in rounds)


def _call(each: dict[str, Any]) -> dict[str, Any]:
    names = ("name", "phase", "count", "input_bytes", "output_bytes")
    return {name: each[name] for name in names}


def _figures(fitted: Calibration) -> dict[str, Any]:
    link = fitted.link
    return {
        "bytes_per_second": {k: v.value for k, v in link.gloo_bytes_per_second.items()},
        "step_seconds": {k: v.value for k, v in link.gloo_step_seconds.items()},
        "errors": [plain(each) for each in fitted.errors if each.collective != "all"],
    }


def _show(rate: str, fitted: Calibration, found: Sequence[dict[str, Any]]) -> None:
    rates = fitted.link.gloo_bytes_per_second
    told = ", ".join(f"{name} {each.value / 1e6:.1f}" for name, each in rates.items())
    print(f"{rate}: {told} MB/s")
    for each in found:
        print(
            f"  {each['strategy']:5} step {each['step_seconds']:.3f} s, "
            f"predicted {each['predicted_seconds']:.3f} ({each['error']:+.1%}); "
            f"waits {each['waiting']:.0%}, predicted {each['predicted_waiting']:.0%}; "
            f"sent {each['payload_bytes'] / 1e6:.3f} MB, "
            f"predicted {each['predicted_bytes'] / 1e6:.3f}",
            flush=True,
        )


def _conditions() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "torch": version("torch"),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "load_of_15_minutes": os.getloadavg()[2],
        "model": MODEL,
        "keys": KEYS,
    }


if __name__ == "__main__":
    main()
