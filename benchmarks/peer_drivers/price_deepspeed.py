"""DeepSpeed: its estimators of what the states of ZeRO 2 and 3 need, from numbers of parameters."""

from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs
from driver import ZERO2, ZERO3, Answer, InexpressibleError, Row, serve, unsharded_across


def price(row: Row) -> Answer:
    unsharded_across(row)
    ranks = {
        "num_gpus_per_node": row["gpus_per_node"],
        "num_nodes": row["gpus"] // row["gpus_per_node"],
        "cpu_offload": False,
    }
    if row["stage"] == ZERO3:
        # It counts a module's own parameters: the largest is the embedding or one matrix.
        largest = row["hidden"] * max(row["vocabulary"], row["ffn"])
        _, peak, _ = estimate_zero3_model_states_mem_needs(
            row["parameters"], largest, cpu_offload_params=False, zero_init=True, **ranks
        )
    elif row["stage"] == ZERO2:
        _, peak = estimate_zero2_model_states_mem_needs(row["parameters"], **ranks)
    else:
        raise InexpressibleError("states that are not sharded as under ZeRO 2 or 3")
    return {"peak_bytes": peak}


if __name__ == "__main__":
    serve("deepspeed", price)
