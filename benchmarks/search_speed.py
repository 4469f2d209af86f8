"""How many plans a second array pricing answers, as a ratio to single estimates of the same plans.

    python benchmarks/search_speed.py [WORKERS]

A mixed space: two models, all strategies, three ways of checkpointing, 8 to 256 GPUs, micro-batches
and sequences, micro-steps, three GPUs and six links. `fits` prices what fits or nearly does, as
`zeroplan plan` does; `all` prices every plan, as `sweep` does. Both are timed by the processors' time
of all workers, so that a busy machine counts less; plans per second are those of the workers together.
"""

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from math import inf
from multiprocessing import get_context

from zeroplan import estimate
from zeroplan.search.blocks import Block, blocks
from zeroplan.search.select import NEAR
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


def priced(job: tuple[Space, dict[str, object], float]) -> tuple[int, float]:
    """Price a structure; return its plans and the processor's time. [s]"""
    space, structure, up_to = job
    start = time.process_time()
    found = list(blocks(space, structure, priced_up_to=up_to))
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
    jobs = [(space, structure) for space in spaces() for structure in space.structures()]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for name, up_to in (("fits", NEAR), ("all", inf)):
            done = list(pool.map(priced, [(*job, up_to) for job in jobs]))
            plans, seconds = (sum(each) for each in zip(*done, strict=True))
            rate = workers * plans / seconds
            print(
                f"{name:4}: {plans:,} plans in {seconds:.0f} s of processor time: {rate:,.0f} plans "
                f"per second on {workers} cores, {alone * plans / seconds:,.0f} times single ones"
            )


if __name__ == "__main__":
    main()
