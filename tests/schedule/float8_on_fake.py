"""One step of FSDP2 with torchao's float8 layers on fake tensors: `python float8_on_fake.py`.

It reads the model and the cases of float8_measured.json and writes that file anew.

Needs torchao, torch and transformers. Uncompiled, so peaks hold fp32 copies that a compiler fuses
away: collectives, and what is resident, are the same.
"""

import json
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torchao.float8 import Float8LinearConfig, convert_to_float8_training
from torchao.float8.fsdp_utils import precompute_float8_dynamic_scale_for_fsdp

from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import resolve
from zeroplan.spec.toml import load_spec
from zeroplan.validate.pytorch.calls import CallLog
from zeroplan.validate.pytorch.environment import fake_group, fake_tensors, on_meta
from zeroplan.validate.pytorch.fsdp2 import wrap
from zeroplan.validate.pytorch.ledger import Ledger
from zeroplan.validate.pytorch.loss import loss_of
from zeroplan.validate.pytorch.optimizers import make_optimizer
from zeroplan.validate.pytorch.published import published
from zeroplan.validate.pytorch.step import batches

FILE = Path(__file__).with_name("float8_measured.json")
RECORD: dict[str, Any] = json.loads(FILE.read_text())
MODEL: dict[str, Any] = RECORD["model"]


def measured(path: str, **keys: Any) -> dict[str, Any]:
    """Return the calls of a second step, and what lives after its forward."""
    asked = {"strategy": "fsdp2", "sequence_length": 128, "activation_checkpointing": "none"}
    question = resolve(load_spec(model=path, **asked, **keys))
    plan = plan_for(question, question.strategies[0], {})
    with on_meta(torch.float32):
        subject = published(dict(MODEL), question.architecture, plan)
    config = Float8LinearConfig(enable_fsdp_float8_all_gather=plan.choice.fp8_all_gather)
    with fake_group(int(plan.groups.world.ranks), 0), fake_tensors() as mode:
        log, ledger = CallLog(), Ledger(mode)
        with ledger, ledger.following_resizes(), subject.conditions():
            convert_to_float8_training(
                subject.module, config=config, module_filter_fn=lambda _, name: name != "lm_head"
            )
            module = wrap(subject, plan)
            optimizer = make_optimizer(module, torch.nn.ModuleList(subject.blocks), plan)
            (batch,) = batches(subject, plan)
            assert optimizer is not None
            kept = 0
            for active in (False, True):
                start = ledger.total
                with log:
                    log.phase = "forward" if active else None
                    loss = loss_of(module, subject, plan, batch, [])
                    kept = ledger.total - start
                    log.phase = "backward" if active else None
                    loss.backward()
                    del loss
                    log.phase = "optimizer" if active else None
                    optimizer.step()
                    module.zero_grad()
                    if plan.choice.fp8_all_gather:
                        precompute_float8_dynamic_scale_for_fsdp(module)
    calls = [[c.name, c.phase, c.count, c.input_bytes, c.output_bytes] for c in log.calls()]
    return {"keys": keys, "calls": calls, "kept_by_forward": kept}


def main() -> None:
    """Measure every case again."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(MODEL))
        cases = [measured(str(path), **case["keys"]) for case in RECORD["cases"]]
    versions = {name: version(name) for name in ("torch", "torchao", "transformers")}
    FILE.write_text(json.dumps({"versions": versions, "model": MODEL, "cases": cases}, indent=1))


if __name__ == "__main__":
    main()
