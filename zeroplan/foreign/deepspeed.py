"""DeepSpeed's configuration: what its keys mean together.

Source: deepspeed/runtime/config.py (0.19.8); what "auto" becomes,
`HfTrainerDeepSpeedConfig` in transformers/integrations/deepspeed.py (5.24).
"""

from typing import Any, Final

from zeroplan.foreign.batch import Batch, share_batch
from zeroplan.foreign.deepspeed_table import DEEPSPEED, FLAT_ONLY, OPTIMIZER, PARAM, ZERO
from zeroplan.foreign.draft import Asked, Draft
from zeroplan.foreign.layers import hidden_size
from zeroplan.foreign.precision import read_switches
from zeroplan.foreign.sorting import Found
from zeroplan.spec.reading import keys
from zeroplan.units import DTYPE_BYTES, GB
from zeroplan.workload.load import load_model

__all__ = ["STAGES", "read_deepspeed"]

STAGES: Final = ("zero0", "zero1", "zero2", "zero3")
"""The strategy of each stage."""

OPTIMIZERS: Final = {
    "adam": "adamw", "adamw": "adamw", "lion": "lion", "sgd": "sgd", "muon": "muon",
}  # fmt: skip
"""Adam is AdamW unless adam_w_mode is false (`_configure_basic_optimizer`)."""

MICS_VERSION: Final = "0.19.6"
"""The last with MiCS."""

AUTO_SIZES: Final = {
    "reduce_bucket_size": "{h} x {h}, the hidden size squared",
    "stage3_prefetch_bucket_size": "0.9 x {h} x {h}, of the hidden size",
    "stage3_param_persistence_threshold": "10 x {h}, of the hidden size",
}
"""What the trainer fills in for "auto" (`trainer_config_finalize`)."""

BATCH: Final = (
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
)  # fmt: skip
CLIPPING: Final = "training.gradient_clipping"


def read_deepspeed(found: Found, draft: Draft, asked: Asked) -> None:
    """Set what the joined keys of a DeepSpeed configuration amount to."""
    number = _strategy(found, draft)
    _only_flat(found, draft, number)
    _offload(found, draft, number)
    read_switches(found, draft, asked)
    _buckets(found, draft, asked, number)
    _clipping(found, draft, asked)
    _optimizer(found, draft, asked)
    _mics(found, draft, asked)
    share_batch(
        Batch(
            total=found.get(BATCH[0]),
            micro=found.get(BATCH[1]),
            steps=found.get(BATCH[2]),
            names=BATCH,
        ),
        draft,
        asked,
    )
    _left_to_trainer(found, draft)
    _replicated(draft, asked, number)


def _strategy(found: Found, draft: Draft) -> int:
    """Set the strategy and return its number."""
    number = found.get(f"{ZERO}stage")
    if number is None and found.get("zero_optimization") is not None:
        number = int(found.get("zero_optimization"))
        draft.remark("zero_optimization as true or false is of old versions: true is stage 1")
    if number is None:
        number = 0
        draft.remark("no zero_optimization.stage: DeepSpeed's stage 0, nothing is sharded")
    draft.set("sharding.strategy", STAGES[number], f"{ZERO}stage: {number}")
    return int(number)


def _only_flat(found: Found, draft: Draft, number: int) -> None:
    """Refuse keys of stages 1 and 2 beside stage 3, unless they have their default."""
    if STAGES[number] != STAGES[-1]:
        return
    for name in FLAT_ONLY:
        key = f"{ZERO}{name}"
        entry = DEEPSPEED[key]
        if entry.use != "read" or found.get(key) is None:
            continue
        usual = keys()[entry.becomes].default
        if found.get(key) != usual:
            raise draft.fault(
                f"{ZERO}stage: {number} with {name} = {found.get(key)}: a key of stages 1 and 2, "
                f"which stage 3 does not read (its default is {usual}). Leave it out, or pass "
                f"--ignore {key}."
            )
        draft.remark(f"{key} is a key of stages 1 and 2: stage {number} does not read it")


def _offload(found: Found, draft: Draft, number: int) -> None:
    """Set where optimizer and parameters live; parameters are offloaded by stage 3 only."""
    old = {OPTIMIZER: "cpu_offload", PARAM: "cpu_offload_param"}
    spec = {OPTIMIZER: "sharding.offload_optimizer", PARAM: "sharding.offload_parameters"}
    for block, name in old.items():
        device, legacy = found.get(f"{block}device"), found.get(f"{ZERO}{name}")
        if device is not None and legacy is not None:
            raise draft.fault(
                f"{ZERO}{name} and {block}device are the same: DeepSpeed takes one of them."
            )
        if legacy is not None:
            draft.remark(f"{ZERO}{name} is an old name: read as {block}device")
            device = "cpu" if legacy else "none"
        if device is None:
            continue
        if device != "none" and number < (len(STAGES) - 1 if block == PARAM else 1):
            draft.remark(
                f"{block}device = {device} has no effect: stage {number} does not offload it"
            )
            continue
        draft.set(
            spec[block],
            device,
            f"{ZERO}{name}" if legacy is not None else f"{block}device = {device}",
        )
    _pinned(found, draft)


def _pinned(found: Found, draft: Draft) -> None:
    named = (f"{OPTIMIZER}pin_memory", f"{PARAM}pin_memory", f"{ZERO}cpu_offload_use_pin_memory")
    pins = {name: found.get(name) for name in named if found.get(name) is not None}
    if len(set(pins.values())) > 1:
        raise draft.fault(
            f"{' and '.join(pins)} differ: only one choice for both is modelled. Make them alike."
        )
    for name, value in pins.items():
        draft.set("sharding.offload_pin_memory", value, f"{name} = {str(value).lower()}")


def _buckets(found: Found, draft: Draft, asked: Asked, number: int) -> None:
    """Set the sizes that may be "auto", which the trainer computes from the model's hidden size.

    It fills those of stage 3 under stage 3 only (`trainer_config_finalize`); elsewhere, and without
    a trainer, DeepSpeed takes its default for "auto" (`DeepSpeedConfigModel.__init__`).
    """
    for name, words in AUTO_SIZES.items():
        key, spec = f"{ZERO}{name}", f"sharding.deepspeed.{name}"
        if found.get(key) is not None:
            draft.set(spec, found.get(key), f"{key} = {found.get(key)}")
        if key not in found.autos:
            continue
        if name.startswith("stage3") and number < len(STAGES) - 1:
            draft.idle[key] = f'"auto", and a key of stage 3 only; this is stage {number}'
            continue
        source = asked.value("model.source")
        if source is None:
            draft.open[spec] = f'{key} = "auto" needs the model: give --model'
            continue
        width = hidden_size(str(source), draft)
        said, size = words.format(h=width), _auto_size(name, width)
        draft.set(spec, size, f'{key} = "auto": {said}')
        draft.remark(f'{key} = "auto" is {size}: {said}')


def _auto_size(name: str, width: int) -> int:
    """Return an "auto" size of a model with this hidden size [elements]."""
    if name == "stage3_param_persistence_threshold":
        return 10 * width
    return width * width if name == "reduce_bucket_size" else int(0.9 * width * width)


def _clipping(found: Found, draft: Draft, asked: Asked) -> None:
    if found.get("gradient_clipping") is not None:
        draft.set(CLIPPING, found.get("gradient_clipping"), "gradient_clipping")
    elif "gradient_clipping" in found.autos and asked.value(CLIPPING) is None:
        value = draft.default(
            CLIPPING, 'gradient_clipping = "auto" is the trainer\'s max_grad_norm'
        )
        draft.set(CLIPPING, value, 'gradient_clipping = "auto"')


def _optimizer(found: Found, draft: Draft, asked: Asked) -> None:
    written = found.get("optimizer.type")
    if written is None:
        if asked.value("training.optimizer") is None:
            draft.remark("no optimizer in the file: say the script's own with --optimizer")
        return
    name = OPTIMIZERS.get(str(written).lower())
    if name is None:
        known = "Adam, AdamW, Lion, SGD, Muon"
        raise draft.fault(
            f"optimizer.type = {written!r}: not modelled; of DeepSpeed's are {known}. Leave it out "
            "and say --optimizer, or pass --ignore optimizer."
        )
    if str(written).lower() == "adam" and found.get("optimizer.params.adam_w_mode") is False:
        name = "adam"
    if name == "sgd" and found.get("optimizer.params.momentum"):
        name = "sgd-momentum"
    draft.set("training.optimizer", name, f"optimizer.type = {written!r}")
    if found.get("optimizer.params.torch_adam"):
        draft.set("training.optimizer_implementation", "foreach", "optimizer.params.torch_adam")


def _mics(found: Found, draft: Draft, asked: Asked) -> None:
    size = found.get(f"{ZERO}mics_shard_size")
    if size is None or size < 1:
        return
    draft.set("sharding.deepspeed.mics_shard_size", size, f"{ZERO}mics_shard_size")
    if asked.value("sharding.deepspeed.version") is None:
        draft.set("sharding.deepspeed.version", MICS_VERSION, f"{ZERO}mics_shard_size")
        draft.remark(f"MiCS went with DeepSpeed 0.19.7: version {MICS_VERSION} is taken")


def _replicated(draft: Draft, asked: Asked, number: int) -> None:
    """Say what stages 1 and 2 leave whole on each GPU: people expect stage 2 to divide it."""
    source = asked.value("model.source")
    if source is None or number not in (1, 2):
        return
    dtype = draft.values.get("training.compute_dtype", "bf16")
    count, size = load_model(str(source)).total_parameters, DTYPE_BYTES[dtype]
    draft.remark(
        f"stage {number} replicates the parameters: each GPU holds all {count:,} of them, {size} B "
        f"each, {size * count / GB:,.1f} GB"
    )


def _left_to_trainer(found: Found, draft: Draft) -> None:
    """Say what each "auto" of the batch became, and what no file says."""
    for name, key in (
        (BATCH[1], "training.micro_batch_size"),
        (BATCH[2], "training.gradient_accumulation_steps"),
    ):
        if key in draft.values:
            if name in found.autos and found.get(BATCH[0]) is None:
                draft.remark(f'{name} = "auto": {key} = {draft.values[key]}, as it is given')
            continue
        why = f'{name} = "auto" is the trainer\'s' if name in found.autos else f"no {name}"
        value: Any = draft.default(key, why)
        draft.set(key, value, why)
    if BATCH[0] in found.autos:
        draft.remark(f'{BATCH[0]} = "auto" is micro-batch x accumulation x GPUs')
    for name in sorted(found.autos):
        if name in ("optimizer.params.torch_adam", "optimizer.params.momentum"):
            draft.idle[name] = '"auto"'
        if DEEPSPEED[name].use == "read":
            draft.remark(f'{name} = "auto": DeepSpeed takes its default')
