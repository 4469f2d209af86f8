"""The trainers' own packages take every export; each test is skipped where its package is missing."""

import dataclasses
import json
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from zeroplan.estimation.resolve import resolve, strategy_groups
from zeroplan.foreign.writing import write_file
from zeroplan.spec.toml import load_spec

PLANS: dict[str, list[dict[str, Any]]] = {
    "deepspeed": [
        {"strategy": "zero0"},
        {"strategy": "zero1", "optimizer": "adam", "optimizer_implementation": "foreach"},
        {"strategy": "zero2", "offload_optimizer": "cpu", "communication_data_type": "fp32", "grad_accum_dtype": "fp32"},
        {"strategy": "zero3", "compute_dtype": "fp16", "zero_hpz_partition_size": 8, "gpus": 16},
        {"strategy": "zero3", "offload_optimizer": "nvme", "offload_parameters": "nvme", "optimizer": "lion"},
    ],
    "accelerate": [
        {"strategy": "fsdp1", "shard_size": 8, "gpus": 16},
        {"strategy": "fsdp1", "shard_size": 1},
        {"strategy": "fsdp2", "offload_activations": True},
        {"strategy": "fsdp2", "reshard_after_forward": False, "offload_parameters": "cpu", "load": "rank0"},
        {"strategy": "hsdp", "gpus": 16},
        {"strategy": "zero3", "offload_parameters": "cpu", "offload_optimizer": "cpu"},
        {"strategy": "ddp", "compile": True},
        {"strategy": "none", "gpus": 1},
    ],
    "torchtitan": [
        {"strategy": "fsdp2", "compile": True, "loss": "compiled", "fp8": "tensorwise", "fp8_all_gather": True},
        {"strategy": "hsdp", "gpus": 16, "activation_checkpointing": "every-2"},
        {"strategy": "ddp"},
    ],
}  # fmt: skip


def _text(form: str, plan: dict[str, Any]) -> str:
    question = resolve(load_spec(model="llama-3.1-8b", **plan))
    ranks = strategy_groups(question.strategies[0], question.run).shard.ranks
    return write_file(question.run, form, ranks).text


@pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs deepspeed")
@pytest.mark.parametrize("plan", PLANS["deepspeed"])
@pytest.mark.filterwarnings("ignore")
def test_deepspeed_takes_the_export(plan: dict[str, Any], tmp_path: Path) -> None:
    from deepspeed.runtime.config import DeepSpeedConfig  # noqa: PLC0415

    text = _text("deepspeed", plan)
    values = json.loads(text)
    world = values["train_batch_size"] // values["train_micro_batch_size_per_gpu"]
    values["train_batch_size"] //= world  # one process: no group is there to ask for its size
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(values))
    config = DeepSpeedConfig(str(path))
    assert f"zero{config.zero_optimization_stage}" == plan["strategy"]
    settings = config.zero_config.model_dump()
    for name, value in values["zero_optimization"].items():
        held = settings[name.removeprefix("stage3_") if name not in settings else name]
        assert held == value or isinstance(value, dict)
    assert config.bfloat16_config.enabled is values["bf16"]["enabled"]


@pytest.mark.skipif(find_spec("accelerate") is None, reason="needs accelerate")
@pytest.mark.parametrize("plan", PLANS["accelerate"])
@pytest.mark.filterwarnings("ignore")
def test_accelerate_takes_the_export(
    plan: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher reads the file, and the plugin what the launcher hands on to its processes."""
    from accelerate import FullyShardedDataParallelPlugin  # noqa: PLC0415
    from accelerate.commands.config.config_args import load_config_from_file  # noqa: PLC0415
    from accelerate.commands.launch import launch_command_parser  # noqa: PLC0415
    from accelerate.utils.constants import FSDP_SHARDING_STRATEGY  # noqa: PLC0415

    path = tmp_path / "a.yaml"
    path.write_text(_text("accelerate", plan))
    config = load_config_from_file(str(path))
    known = vars(launch_command_parser().parse_args(["script.py"]))
    for section in (config.fsdp_config, config.parallelism_config, config.deepspeed_config):
        assert [name for name in section if name not in known] == []
    if not config.fsdp_config:
        return
    for name, value in config.fsdp_config.items():
        renamed = {"fsdp_transformer_layer_cls_to_wrap": "FSDP_TRANSFORMER_CLS_TO_WRAP"}
        monkeypatch.setenv(
            renamed.get(name, name.upper()),
            str(value).lower() if isinstance(value, bool) else str(value),
        )
    monkeypatch.setenv("FSDP_SYNC_MODULE_STATES", "false")
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "false")
    plugin = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == (1 if plan["strategy"] == "fsdp1" else 2)
    if plan["strategy"] == "fsdp1":
        written = FSDP_SHARDING_STRATEGY.index(config.fsdp_config["fsdp_sharding_strategy"]) + 1
        assert plugin.sharding_strategy.value == written
    else:
        assert plugin.reshard_after_forward is plan.get("reshard_after_forward", True)


@pytest.mark.skipif(find_spec("torchtitan") is None, reason="needs torchtitan")
@pytest.mark.parametrize("plan", PLANS["torchtitan"])
def test_torchtitans_sections_have_the_fields_of_the_export(plan: dict[str, Any]) -> None:
    """torchtitan 0.3 reads no TOML any more; its sections have the same fields."""
    config = pytest.importorskip("torchtitan.config")
    found = tomllib.loads(_text("torchtitan", plan))
    sections = {
        "training": config.TrainingConfig,
        "parallelism": config.ParallelismConfig,
        "compile": config.CompileConfig,
    }
    for name, owner in sections.items():
        assert set(found[name]) <= {field.name for field in dataclasses.fields(owner)}
        made = owner(**found[name])
        assert {key: getattr(made, key) for key in found[name]} == found[name]


RUN = """
import sys
from torch import distributed as dist, nn
from torch.testing._internal.distributed.fake_pg import FakeStore

scope = {{}}
exec(compile(open(sys.argv[1]).read(), "script", "exec"), scope)
dist.init_process_group("fake", rank=0, world_size={gpus}, store=FakeStore())
model = nn.Sequential(nn.Embedding(64, 32), *(nn.Linear(32, 32) for _ in range(4)), nn.LayerNorm(32))
scope["shard"](model, model[1:5], embedding=model[0], last=model[5], device="cpu")
print(sum(p.to_local().numel() for p in model.parameters()), sum(p.numel() for p in model.parameters()))
"""


@pytest.mark.torch
@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize(
    ("plan", "ranks"),
    [
        ({"strategy": "fsdp2", "gpus": 8}, 8),
        ({"strategy": "hsdp", "gpus": 16, "root_wrap": "separate"}, 8),
        ({"strategy": "fsdp2", "gpus": 4, "forward_prefetch_blocks": 2, "backward_prefetch_blocks": 1, "reshard_after_forward": 2}, 4),
    ],
    ids=["fsdp2", "hsdp", "prefetching"],
)  # fmt: skip
def test_the_script_shards_a_model(plan: dict[str, Any], ranks: int, tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text(_text("fsdp2", plan))
    command = [sys.executable, "-c", RUN.format(gpus=plan["gpus"]), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    own, whole = map(int, done.stdout.split())
    assert own * ranks == whole
