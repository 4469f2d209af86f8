"""Collectives of FSDP2 and HSDP against real processes: count, input and output bytes."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from zeroplan.estimation import estimate

STEPS = tomllib.loads(Path(__file__).with_name("fsdp2_collectives.toml").read_text())["step"]
MODEL = Path(__file__).with_name("toy_llama.json")
DESCRIPTION = {"name", "fake", "ranks", "copies", "keys"}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step["name"])
def test_every_call_is_there_with_its_bytes_and_no_other(step: dict[str, Any]) -> None:
    copies = step.get("copies", 1)
    shard = step["ranks"] // copies
    answer = estimate(
        model=str(MODEL),
        strategy="hsdp" if copies > 1 else "fsdp2",
        gpus=step["ranks"],
        gpus_per_node=shard,
        shard_size=shard,
        sequence_length=32,
        **{"activation_checkpointing": "none"} | step["keys"],
    )
    found = {
        f"{call.name}_{call.phase}": [call.count, call.input_bytes, call.output_bytes]
        for call in answer.estimates[0].communication.collectives
    }
    assert found == {key: step[key] for key in step.keys() - DESCRIPTION}
