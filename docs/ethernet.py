"""Write the page on how long GPUs wait for Ethernet.

python docs/ethernet.py            rewrite docs/ethernet.md
python docs/ethernet.py --check    only say whether it is stale
"""

import sys
from pathlib import Path
from typing import Final

from zeroplan import estimate

PAGE: Final = Path(__file__).parent / "ethernet.md"

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
"""


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


def page() -> str:
    """Return the page."""
    parts = [f"## {name}\n\n{table(strategy)}" for strategy, name in STRATEGIES.items()]
    return "\n".join((TEXT, *parts))


def main() -> None:
    """Rewrite the page, or check it."""
    text = page()
    if sys.argv[1:] == ["--check"]:
        stale = not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text
        sys.exit("docs/ethernet.md is stale: run `python docs/ethernet.py`." if stale else 0)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
