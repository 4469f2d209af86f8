"""What autograd keeps of each block of a class of transformers; `python published_blocks.py` records it.

The class runs on fake tensors in bf16, with one kernel for attention, LayerNorm and dropout as on a
GPU. A storage counts once, where it is saved first, if it is still kept after forward; parameters and
rotary tables, which all blocks share, do not count.
"""

import json
import warnings
import weakref
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).with_name("published_blocks.json")
RECORD: Final = json.loads(FILE.read_text(encoding="utf-8"))
MODELS: Final[dict[str, Any]] = RECORD["models"]
SEQUENCES: Final[int] = RECORD["sequences"]
LENGTH: Final[int] = RECORD["sequence_length"]


class Kept:
    """The storages that autograd packs, by the block that saved them first."""

    def __init__(self, module: Any) -> None:
        self.block = ""
        self.packed: list[tuple[str, int, weakref.ref[Any], int]] = []
        self.left_out = {id(each.untyped_storage()): each for each in module.parameters()}

    def leave_out(self, _module: Any, _inputs: Any, tables: Any) -> None:
        """Take a rotary embedding's tables out of the count."""
        for table in tables if isinstance(tables, tuple) else (tables,):
            self.left_out[id(table.untyped_storage())] = table

    def pack(self, tensor: Any) -> Any:
        """Note one storage."""
        storage = tensor.untyped_storage()
        if id(storage) not in self.left_out:
            self.packed.append((self.block, id(storage), weakref.ref(storage), storage.nbytes()))
        return tensor

    def sizes(self) -> list[list[int]]:
        """Return the sizes that each block keeps, in ascending order, as the blocks ran. [B]"""
        found: dict[str, list[int]] = {}
        seen = set()
        for block, key, reference, size in self.packed:
            if block and key not in seen and reference() is not None:
                seen.add(key)
                found.setdefault(block, []).append(size)
        return [sorted(sizes) for sizes in found.values()]


def kept_by_block(name: str) -> list[list[int]]:
    """Run a model of the list forward and return what each of its blocks keeps. [B]"""
    import torch  # noqa: PLC0415  # the recorded figures need none
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415

    from zeroplan.validate.pytorch.conditions import as_on_cuda  # noqa: PLC0415

    module = _built(dict(MODELS[name]["config"]))
    with FakeTensorMode(allow_non_fake_inputs=True), as_on_cuda():
        module.to_empty(device="cpu")
        module.tie_weights()
        kept = Kept(module)
        _watch_blocks(module, kept)
        hooks = torch.autograd.graph.saved_tensors_hooks(kept.pack, lambda tensor: tensor)
        with hooks:
            output = module(**_inputs(module))
            sizes = kept.sizes()
        del output
    return sizes


def _built(config: dict[str, Any]) -> Any:
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    from zeroplan.validate.pytorch.environment import on_meta  # noqa: PLC0415
    from zeroplan.validate.pytorch.published import stand_in  # noqa: PLC0415

    family = getattr(transformers, config.pop("architectures")[0])
    off = {"use_cache": False, "attention_dropout": 0.0, "attention_probs_dropout_prob": 0.0}
    settings = transformers.AutoConfig.for_model(**{**config, **off})
    with on_meta(torch.bfloat16):
        options = {"attn_implementation": "sdpa", "dtype": torch.bfloat16}
        module = family._from_config(settings, **options)  # noqa: SLF001  # also of bare classes
    for parameter in module.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    for part in module.modules():
        stand_in(part)
    return module.train()


def _watch_blocks(module: Any, kept: Kept) -> None:
    """Tell by hooks which block runs; lists inside of blocks are no lists of blocks."""
    import torch  # noqa: PLC0415

    lists: list[str] = []
    for name, part in module.named_modules():
        if "Rotary" in type(part).__name__:
            part.register_forward_hook(kept.leave_out)
        inside = any(name.startswith(f"{other}.") for other in lists)
        if isinstance(part, torch.nn.ModuleList) and not inside:
            lists.append(name)
            for index, block in enumerate(part):
                _watch(block, kept, f"{name}.{index}")


def _watch(block: Any, kept: Kept, name: str) -> None:
    def enter(*_: Any) -> None:
        kept.block = name

    def leave(*_: Any) -> None:
        kept.block = ""

    block.register_forward_pre_hook(enter)
    block.register_forward_hook(leave)


def _inputs(module: Any) -> dict[str, Any]:
    import torch  # noqa: PLC0415

    ids = torch.zeros(SEQUENCES, LENGTH, dtype=torch.int64)
    side = getattr(module.config, "image_size", None) or getattr(
        getattr(module.config, "vision_config", None), "image_size", 0
    )
    pixels = torch.zeros(SEQUENCES, 3, side, side, dtype=torch.bfloat16)
    given = {
        "pixel_values": pixels,
        "input_ids": ids,
        "decoder_input_ids": ids,
    }
    reads = {"pixel_values"} if module.main_input_name == "pixel_values" else {"input_ids"}
    if module.config.is_encoder_decoder:
        reads.add("decoder_input_ids")
    if hasattr(module.config, "vision_config"):
        reads.add("pixel_values")
    return {name: given[name] for name in reads}


def main() -> None:
    """Record every model of the list anew."""
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    warnings.simplefilter("ignore")
    RECORD["versions"] = {"torch": torch.__version__, "transformers": transformers.__version__}
    lines = (
        f'  {json.dumps(name)}: {{\n    "config": {json.dumps(model["config"])},\n    "kept": [\n'
        + ",\n".join(f"      {json.dumps(block)}" for block in kept_by_block(name))
        + "\n    ]\n  }"
        for name, model in MODELS.items()
    )
    head = json.dumps({key: value for key, value in RECORD.items() if key != "models"}, indent=1)
    models = ",\n".join(lines)
    FILE.write_text(f'{head[:-2]},\n "models": {{\n{models}\n }}\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
