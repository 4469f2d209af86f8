"""Write the page on how long GPUs wait for Ethernet.

python docs/ethernet.py            rewrite docs/ethernet.md
python docs/ethernet.py --check    only say whether it is stale
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

from zeroplan import estimate

PAGE: Final = Path(__file__).parent / "ethernet.md"
MEASURED: Final = Path(__file__).parents[1] / "benchmarks" / "slow_link.json"

LINKS: Final = {
    "ethernet-1g": "1 Gbit/s",
    "ethernet-10g": "10 Gbit/s",
    "ethernet-25g": "25 Gbit/s",
    "ethernet-100g": "100 Gbit/s",
    "ib-hdr200": "InfiniBand, 200 Gbit/s a GPU",
}
CLUSTERS: Final = {"8 x 1": (8, 1), "2 x 8": (16, 8), "8 x 8": (64, 8), "32 x 8": (256, 8)}
"""GPUs, and GPUs per node."""
SEQUENCES: Final = (1, 2, 4, 8, 16, 32)
STRATEGIES: Final = {"zero3": "ZeRO-3", "fsdp2": "FSDP2"}

TEXT: Final = """# How long GPUs wait for Ethernet

It is said that on ordinary Ethernet GPUs wait about 90 % of the time. Here is where that is so: the
share of a step in which compute waits for communication, for Llama 3.1 8B with sequences of 4,096
tokens and full checkpointing on A100 nodes that share one Ethernet port. This page is written by
`python docs/ethernet.py`; the links' constants and how far off they may be are in
`zeroplan hardware show ethernet-10g`. Whether a batch fits into memory is another question.

- One sequence per GPU waits about 90 % of the time on 25 Gbit/s, more on less, four fifths on
  100 Gbit/s.
- Two things end it: bandwidth, and tokens per GPU between two exchanges. Eight times the sequences
  at 10 Gbit/s wait less than one sequence at 100 Gbit/s does.
- The number of GPUs hardly matters. Every node sends and receives nearly the whole model, whether
  there are 2 nodes or 32, until steps of the ring count.
- Sockets carry about 4.5 GB/s on a host, whatever its port: above some 40 Gbit/s only RDMA helps.
- Two real jobs across a link that was slowed down wait as predicted: the last table.
"""

FP32_BYTES: Final = 4

LAB: Final = """## Measured

`benchmarks/slow_link.py` trains for real across a link that is as slow as it is told: two network
namespaces of one Linux machine, joined by a veth pair that `tc tbf` shapes. Two ranks of PyTorch's
own FSDP2 and DDP meet there over gloo, with a Llama of {parameters:.1f} million parameters in fp32
and {tokens} tokens per rank and step. Recorded on {date} with torch {torch} on {cores} CPU cores, with
much else running beside it (a load of {load:.0f}), of which the ranks were given the first share.

| link | strategy | step, measured [s] | predicted [s] | error [%] | waits, measured [%] | predicted [%] | sent per step [MB] | predicted [MB] |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{rows}
At 100 Mbit/s the ranks of FSDP2 do wait about 90 % of the time, and those of DDP less. Nothing is
fitted to a step. The time of computing is that of both ranks at once, in the same code and the same
minutes, in a group whose collectives return at once. The collectives are those of
`zeroplan estimate --backend gloo --link veth-100mbit`, with a profile that `zeroplan calibrate` made
of all-gathers, reduce-scatters and all-reduces timed over message sizes on that very link. Two
things that NCCL does otherwise:

- **gloo's reduce-scatter is an all-reduce on the wire**: it sends twice the bytes. Bytes are the
  payload of all packets, counted at the interface.
- **Its collectives do not overlap with computing**, so that this tests volumes and bandwidths, not
  overlap. Each collective has figures of its own: of the 37.5 MB/s of a 300 Mbit/s link, {rates}.
"""
"""What stands below the tables, with figures from the record."""


def share(strategy: str, cluster: str, sequences: int, link: str) -> float:
    """Return the share of a step that compute waits. [1]"""
    gpus, per_node = CLUSTERS[cluster]
    found = estimate(
        model="llama-3.1-8b",
        gpu="a100-sxm4-80gb",
        gpus=gpus,
        gpus_per_node=per_node,
        link=link,
        strategy=strategy,
        micro_batch_size=sequences,
    )
    time = found.estimates[0].time
    if time.exposed_communication_seconds is None or time.step_seconds is None:
        sys.exit(f"{strategy} on {cluster} has no time")
    return time.exposed_communication_seconds / time.step_seconds


def table(strategy: str) -> str:
    """Return the shares under one strategy, in percent."""
    heads = ("nodes x GPUs", "sequences per GPU", *(f"{name} [%]" for name in LINKS.values()))
    rows = [
        (cluster, sequences, *(f"{share(strategy, cluster, sequences, x):.0%}"[:-1] for x in LINKS))
        for cluster in CLUSTERS
        for sequences in SEQUENCES
    ]
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def measured() -> str:
    """Return what the record of the slow link shows."""
    record = json.loads(MEASURED.read_text(encoding="utf-8"))
    of = {run["rate"]: run["link"]["bytes_per_second"] for run in record["runs"]}["300mbit"]
    names = ("all_gather", "reduce_scatter", "all_reduce")
    return LAB.format(
        parameters=_reduced_bytes(record) / FP32_BYTES / 1e6,
        tokens=record["keys"]["sequence_length"],
        date=record["date"],
        torch=record["torch"],
        cores=record["cores"],
        load=record["load_of_15_minutes"],
        rows="".join(
            measured_row(run["rate"], job) for run in record["runs"] for job in run["jobs"]
        ),
        rates=", ".join(f"{name.replace('_', '-')}s carry {of[name] / 1e6:.0f}" for name in names),
    )


def _reduced_bytes(record: dict[str, Any]) -> int:
    """Return what DDP reduces: every parameter's gradient once. [B]"""
    (job,) = [each for each in record["runs"][0]["jobs"] if each["strategy"] == "ddp"]
    return sum(call["input_bytes"] for call in job["calls"] if call["name"] == "all_reduce")


def measured_row(rate: str, job: dict[str, Any]) -> str:
    """Return a job at one rate."""
    cells = (
        f"{rate[:-4]} {rate[-4].upper()}bit/s",
        {"fsdp2": "FSDP2", "ddp": "DDP"}[job["strategy"]],
        f"{job['step_seconds']:.2f}",
        f"{job['predicted_seconds']:.2f}",
        f"{job['error']:+.1%}"[:-1],
        f"{job['waiting']:.0%}"[:-1],
        f"{job['predicted_waiting']:.0%}"[:-1],
        f"{job['payload_bytes'] / 1e6:.2f}",
        f"{job['predicted_bytes'] / 1e6:.2f}",
    )
    return f"| {' | '.join(cells)} |\n"


def page() -> str:
    """Return the page."""
    parts = [f"## {name}\n\n{table(strategy)}" for strategy, name in STRATEGIES.items()]
    return "\n".join((TEXT, *parts, measured()))


def main() -> None:
    """Rewrite the page, or check it."""
    text = page()
    if sys.argv[1:] == ["--check"]:
        stale = not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text
        sys.exit("docs/ethernet.md is stale: run `python docs/ethernet.py`." if stale else 0)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
