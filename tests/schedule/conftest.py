"""Small Llamas whose training steps were measured with the real frameworks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zeroplan.estimation import estimate
from zeroplan.estimation.record import StrategyEstimate
from zeroplan.schedule.plan import Plan
from zeroplan.sharding.dtypes import dtypes
from zeroplan.sharding.groups import groups
from zeroplan.sharding.offload import offloading
from zeroplan.sharding.strategies import sharding
from zeroplan.spec.architecture import (
    Architecture,
    Attention,
    Block,
    Embedding,
    Head,
    Mlp,
    Norm,
    Stack,
    Sublayer,
)
from zeroplan.spec.run import DeepSpeed, ShardingChoice, TrainingChoice
from zeroplan.workload.batch import Batch
from zeroplan.workload.model import workload
from zeroplan.workload.tuning import Tuning

Case = dict[str, Any]


@pytest.fixture
def estimated(tmp_path: Path) -> Callable[[str, Case], StrategyEstimate]:
    """Estimate a row of a measured table."""

    def answer(strategy: str, step: Case) -> StrategyEstimate:
        blocks, hidden, heads, kv_heads, width, vocabulary = step["model"]
        config = {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "num_hidden_layers": blocks,
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "intermediate_size": width,
            "vocab_size": vocabulary,
            "tie_word_embeddings": step.get("tied", False),
        }
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        keys = {"activation_checkpointing": "none", **step["keys"]}
        (found,) = estimate(
            model=str(path), strategy=strategy, gpus=step["gpus"], gpus_per_node=8, **keys
        ).estimates
        return found

    return answer


TWO_LEVELS = ("zero_quantized_gradients", "mics_hierarchical_params_gather")
CASE: Case = {
    "strategy": "zero2",
    "ranks": 2,
    "micro_steps": 1,
    "checkpointing": "none",
    "dtype": "bf16",
    "implementation": "foreach",
    "clip": 0.0,
    "sequences": 1,
    "shape": {
        "vocabulary": 1000,
        "hidden": 256,
        "layers": 4,
        "heads": 4,
        "kv_heads": 4,
        "width": 768,
        "tokens": 4,
    },
    "deepspeed": {},
}


@pytest.fixture(scope="session")
def deepspeed_plan() -> Callable[..., Plan]:
    """Plan a case of deepspeed_measured.json, or the small Llama with what differs from it."""

    def plan(**changed: Any) -> Plan:
        return _plan({**CASE, **changed})

    return plan


def _plan(case: Case) -> Plan:
    row, sequences = sharding(case["strategy"]), case["sequences"]
    training = TrainingChoice(
        sequence_length=case["shape"]["tokens"],
        micro_batch_size=sequences,
        gradient_accumulation_steps=case["micro_steps"],
        activation_checkpointing="none" if case["checkpointing"] == "none" else "full",
        checkpoint_reentrant=case["checkpointing"] == "reentrant",
        compute_dtype=case["dtype"],
        optimizer_implementation=case["implementation"],
        gradient_clipping=case["clip"],
    )
    batch = Batch(
        sequences=sequences,
        sequence_length=case["shape"]["tokens"],
        dtype=case["dtype"],
        rope="complex",
        tuning=_tuning(case),
    )
    ranks = case["ranks"]
    places = {name: each["device"] for name, each in case.get("offload", {}).items()}
    choice = ShardingChoice(
        strategy=case["strategy"],
        offload_optimizer=places.get("optimizer", "none"),
        offload_parameters=places.get("param", "none"),
        deepspeed=DeepSpeed(**case["deepspeed"]),
    )
    return Plan(
        workload=workload(_llama(case["shape"]), batch),
        row=row,
        offload=offloading(row, choice),
        dtypes=dtypes(row, training),
        groups=groups(
            gpus=ranks,
            gpus_per_node=case.get("ranks_per_node", 8),
            shard_size=case["deepspeed"].get("mics_shard_size", ranks),
            secondary_size=case["deepspeed"].get("zero_hpz_partition_size", 1),
            two_levels=any(case["deepspeed"].get(key, False) for key in TWO_LEVELS),
        ),
        training=training,
        choice=choice,
    )


def _tuning(case: Case) -> Tuning | None:
    if "tuning" not in case:
        return None
    return Tuning(
        rank=case["tuning"]["rank"],
        trained=tuple(case["tuning"]["trained"]),
        input_requires_grad=case["checkpointing"] == "reentrant",
    )


def _llama(shape: dict[str, Any]) -> Architecture:
    hidden, heads = shape["hidden"], shape["heads"]
    norm = Norm(kind="rms", width=hidden)
    attention = Attention(
        hidden=hidden, heads=heads, kv_heads=shape["kv_heads"], head_dim=hidden // heads
    )
    mlp = Mlp(hidden=hidden, width=shape["width"])
    block = Block(
        sublayers=(
            Sublayer(name="attention", norm=norm, component=attention),
            Sublayer(name="mlp", norm=norm, component=mlp),
        )
    )
    table = Embedding(name="embedding", rows=shape["vocabulary"], width=hidden)
    stack = Stack(
        name="decoder",
        hidden=hidden,
        embeddings=(table,),
        blocks=(block,) * shape["layers"],
        final_norm=norm,
    )
    return Architecture(
        name="small Llama",
        model_type="llama",
        class_name="Llama",
        stacks=(stack,),
        head=Head(hidden=hidden, rows=shape["vocabulary"], tied=shape.get("tied", False)),
        max_positions=None,
        source="test",
    )
