"""How many plans a second array pricing answers, as a ratio to single estimates of the same plans.

    python benchmarks/search_speed.py [WORKERS]

A mixed space: two models, all strategies, three ways of checkpointing, 8 to 256 GPUs, micro-batches
and sequences, micro-steps, three GPUs and six links. `plan` has the memory of every plan and the time
of those that may be the fastest, as `zeroplan plan` does; `sweep` has both of every plan. Strategies
are shown one by one, too: ZeRO-3's steps have the most events. Both are timed by the processors' time
of all workers, so that a busy machine counts less; plans per second are those of the workers together.
"""

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from zeroplan import estimate
from zeroplan.search.blocks import Block, blocks
from zeroplan.search.select import races
from zeroplan.search.space import Space, space_of

SINGLE = 40
"""Single estimates that are timed beside. [count]"""

AXES: dict[str, object] = {
    "training.micro_batch_size": [1, 2, 3, 4, 6, 8, 12, 16, 24, 32],
    "training.sequence_length": [1024, 2048, 4096, 8192, 16384, 32768],
    "training.gradient_accumulation_steps": [1, 4, 8, 16, 32, 64],
    "training.activation_checkpointing": ["none", "selective", "full"],
    "cluster.gpus": [8, 16, 32, 64, 128, 256],
    "cluster.gpu": ["h100-sxm5-80gb", "a100-sxm4-80gb", "h200-sxm-141gb"],
    "cluster.link": [
        "ib-ndr400",
        "ib-hdr200",
        "roce-200",
        "ethernet-100g",
        "ethernet-25g",
        "ethernet-10g",
    ],
}


def spaces() -> list[Space]:
    """Return the space of each model."""
    models = ("llama-3.1-8b", "llama-3.1-70b")
    return [space_of({"model.source": model, **AXES}) for model in models]


def priced(job: tuple[Space, list[dict[str, object]], bool]) -> tuple[int, float]:
    """Price a family of structures; return its plans and the processor's time. [s]"""
    space, family, raced = job
    start = time.process_time()
    found = blocks(space, family, races=partial(races, tight=False) if raced else None)
    plans = sum(int(each.figures.verdict.size) for each in found if isinstance(each, Block))
    return plans, time.process_time() - start


def single() -> float:
    """Return the processor's time of one estimate of a plan that was not asked before. [s]"""
    estimate(model="llama-3.1-8b", gpus=8, strategy="fsdp2")
    start = time.process_time()
    for each in range(SINGLE):
        estimate(model="llama-3.1-8b", gpus=8, strategy="fsdp2", sequence_length=1024 + 8 * each)
    return (time.process_time() - start) / SINGLE


def main() -> None:
    """Print plans per second, and how many single estimates would have taken as long."""
    workers = int(sys.argv[1]) if sys.argv[1:] else 2
    alone = single()
    print(f"one estimate: {1e3 * alone:.1f} ms")
    jobs = [(space, family) for space in spaces() for family in space.families()]
    strategies = [str(family[0]["sharding.strategy"]) for _, family in jobs]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for name in ("plan", "sweep"):
            done = list(pool.map(priced, [(*job, name == "plan") for job in jobs]))
            for kind in (*dict.fromkeys(strategies), "all"):
                some = [
                    each
                    for each, strategy in zip(done, strategies, strict=True)
                    if kind in (strategy, "all")
                ]
                plans, seconds = (sum(each) for each in zip(*some, strict=True))
                print(
                    f"{name:5} {kind:6} {plans:11,} plans in {seconds:4.0f} s of processor time: "
                    f"{workers * plans / seconds:9,.0f} per second on {workers} cores, "
                    f"{alone * plans / seconds:6,.0f} times single ones"
                )


if __name__ == "__main__":
    main()
