"""mlsysim: DistributedModel for the step, TrainingMemoryModel for the peak."""

from driver import Answer, Row, known, serve, unsharded_across
from mlsysim import Hardware
from mlsysim.core.units import Q_
from mlsysim.engine.solvers.distributed import DistributedModel
from mlsysim.engine.solvers.training import TrainingMemoryModel
from mlsysim.models.types import TransformerWorkload
from mlsysim.systems.types import Fleet, NetworkFabric, Node

GPUS = {
    "a100-sxm4-40gb": Hardware.Cloud.A100_40GB,
    "a100-sxm4-80gb": Hardware.Cloud.A100,
    "h100-sxm5-80gb": Hardware.Cloud.H100,
    "h100-sxm-96gb-hbm2e": Hardware.Cloud.H100,
    "v100-sxm2-16gb": Hardware.Cloud.V100,
    "v100-sxm2-32gb": Hardware.Cloud.V100,
    "b200-sxm": Hardware.Cloud.B200,
}
PRECISIONS = {"fp32": "fp32", "fp16": "fp16", "bf16": "fp16"}
CHECKPOINTING = {"full": "full", "none": "none"}


def price(row: Row) -> Answer:
    unsharded_across(row)
    accelerator = known(GPUS, row, "gpu")
    kept = known(CHECKPOINTING, row, "checkpointing")
    flash = row["attention"] == "flash"
    model = TransformerWorkload(
        name="row",
        architecture="Transformer",
        parameters=Q_(row["parameters"], "count"),
        layers=row["layers"],
        hidden_dim=row["hidden"],
        heads=row["heads"],
        kv_heads=row["kv_heads"],
    )
    common = {
        "batch_size": row["micro_batch"] * row["accumulation"] * row["gpus"],
        "seq_len": row["sequence_length"],
        "precision": known(PRECISIONS, row, "compute_dtype"),
        "zero_stage": row["stage"],
        "gradient_accumulation_steps": row["accumulation"],
    }
    step = DistributedModel().solve(
        model, fleet(row, accelerator), activation_recomputation=kept == "full", **common
    )
    memory = TrainingMemoryModel().solve(
        model,
        accelerator,
        dp_size=row["gpus"],
        activation_checkpointing="selective" if kept == "none" and flash else kept,
        **common,
    )
    return {
        "step_seconds": step.step_latency_total.m_as("second"),
        "peak_bytes": memory.total_memory.m_as("byte"),
    }


def fleet(row: Row, accelerator: object) -> Fleet:
    per_node = row["gpus_per_node"]
    port = Q_(row["node_bytes_per_second"] / per_node, "byte/second")  # it knows a NIC per GPU
    node = Node(
        name="node",
        accelerator=accelerator,
        accelerators_per_node=per_node,
        intra_node_bw=accelerator.nvlink.bandwidth_per_direction,
    )
    fabric = NetworkFabric(name="fabric", bandwidth=port)
    return Fleet(name="fleet", node=node, count=row["gpus"] // per_node, fabric=fabric)


if __name__ == "__main__":
    serve("mlsysim", price)
