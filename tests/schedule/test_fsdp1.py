"""FSDP1 against real processes: what it sends, and how high each phase goes."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeroplan.errors import SpecError
from zeroplan.estimation.record import StrategyEstimate
from zeroplan.schedule.fsdp1 import fsdp1_script
from zeroplan.schedule.plan import Plan
from zeroplan.sharding.dtypes import dtypes
from zeroplan.sharding.groups import groups
from zeroplan.sharding.strategies import sharding
from zeroplan.spec.models import load_architecture
from zeroplan.spec.run import ShardingChoice, TrainingChoice
from zeroplan.validate import validate
from zeroplan.workload.batch import Batch
from zeroplan.workload.model import workload

STEPS = tomllib.loads(Path(__file__).with_name("fsdp1_measured.toml").read_text())["step"]
MODEL = Path(__file__).with_name("toy_llama.json")
DESCRIPTION = {"name", "model", "tied", "gpus", "keys", "peak_bytes", "fused_counters"}
SCALARS_BYTES = 4 * 512
"""The loss, the seed of its gradient and two scalars of clipping, which zeroplan leaves out."""

Estimated = Callable[[str, dict[str, Any]], StrategyEstimate]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step["name"])
def test_every_collective_is_sent_with_its_bytes_and_no_other(
    step: dict[str, Any], estimated: Estimated
) -> None:
    found = {
        f"{call.name}_{call.phase}": [call.count, call.input_bytes, call.output_bytes]
        for call in estimated("fsdp1", step).communication.collectives
    }
    assert found == {key: step[key] for key in step.keys() - DESCRIPTION}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step["name"])
def test_each_phase_peaks_where_real_processes_do(
    step: dict[str, Any], estimated: Estimated
) -> None:
    found = estimated("fsdp1", step).memory.peak_by_phase_bytes
    predicted = (found.forward, found.backward, found.optimizer)
    counters = 512 * step.get("fused_counters", 0)
    missing = [
        real + counters - ours for real, ours in zip(step["peak_bytes"], predicted, strict=True)
    ]
    assert all(0 <= difference <= SCALARS_BYTES for difference in missing)


@settings(max_examples=40)
@given(
    shard=st.sampled_from([1, 2, 4]),
    choice=st.fixed_dictionaries(
        {
            "reshard_after_forward": st.booleans(),
            "use_orig_params": st.booleans(),
            "backward_prefetch": st.sampled_from(["pre", "post", "none"]),
            "root_wrap": st.sampled_from(["together", "separate"]),
            "synchronize_gradients": st.sampled_from(["every", "last"]),
        }
    ),
    training=st.fixed_dictionaries(
        {
            "gradient_accumulation_steps": st.integers(1, 5),
            "activation_checkpointing": st.sampled_from(["none", "full", "every-2", "selective"]),
            "parameter_dtype": st.sampled_from(["fp32", "bf16"]),
            "reduce_dtype": st.sampled_from(["fp32", "bf16"]),
        }
    ),
)
def test_a_step_ends_with_the_bytes_with_which_it_began(
    shard: int, choice: dict[str, Any], training: dict[str, Any]
) -> None:
    script = fsdp1_script(_plan(shard, choice, training))
    assert sum(times * sum(c.bytes for c in event.changes) for event, times in script.calls()) == 0


def test_resharding_to_a_number_of_ranks_is_refused_with_what_can_be_had() -> None:
    with pytest.raises(SpecError, match=r"reshard_after_forward = 2: .* use true, false or fsdp2"):
        fsdp1_script(_plan(4, {"reshard_after_forward": 2}, {}))


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"shard_size": 1},
        {"shard_size": 2, "replicate_size": 2},
        {
            "use_orig_params": False,
            "gradient_accumulation_steps": 3,
            "synchronize_gradients": "last",
        },
        {
            "gradient_accumulation_steps": 3,
            "backward_prefetch": "post",
            "reduce_dtype": "bf16",
            "gradient_clipping": 1.0,
        },
    ],
    ids=json.dumps,
)
@pytest.mark.filterwarnings("ignore")  # FSDP1 says that it, and NO_SHARD, are on the way out
def test_the_installed_pytorch_steps_as_predicted(keys: dict[str, Any]) -> None:
    """On fake tensors with a fake process group: FSDP1's own code, without data."""
    answer = validate(
        model=str(MODEL), strategy="fsdp1", gpus=4, sequence_length=32, tolerance=0.001, **keys
    )
    assert answer.inside, answer.largest


def _plan(shard: int, choice: dict[str, Any], training: dict[str, Any]) -> Plan:
    trained = TrainingChoice(**training)
    row = sharding("fsdp1")
    return Plan(
        workload=workload(load_architecture(str(MODEL)), Batch(sequences=1, sequence_length=32)),
        row=row,
        dtypes=dtypes(row, trained),
        groups=groups(gpus=4, gpus_per_node=4, shard_size=shard),
        training=trained,
        choice=ShardingChoice(**choice),
    )
