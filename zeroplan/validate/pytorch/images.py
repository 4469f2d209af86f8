"""What a vision-language class of transformers reads for a micro-step."""

from collections.abc import Callable
from typing import Any

import torch

from zeroplan.errors import MissingPartError
from zeroplan.schedule.plan import Plan
from zeroplan.spec.architecture import Architecture
from zeroplan.validate.pytorch.environment import token_ids

__all__ = ["reads_images"]

REFUSED = "qwen"
"""Classes that read the extents of their images from data, which fakes have not."""

Inputs = Callable[[Plan], dict[str, torch.Tensor]]


def reads_images(settings: Any, model: Architecture, plan: Plan) -> Inputs:
    """Return what makes token ids and pixels; the images are as large as the class wants them."""
    if settings.model_type.startswith(REFUSED):
        raise MissingPartError(
            f"transformers reads the sizes of images from data in {settings.model_type}, which fake "
            "tensors have not"
        )
    side = settings.vision_config.image_size
    count = int(plan.training.images_per_sequence)
    if plan.training.image_tokens is not None:
        raise MissingPartError(
            f"training.image_tokens: the tower of {model.name} takes images of one size only"
        )
    make = _tiles if settings.model_type == "mllama" else _images
    return lambda plan: {
        "input_ids": token_ids(plan),
        **make(settings.vision_config, plan, count, side),
    }


def _images(tower: Any, plan: Plan, count: int, side: int) -> dict[str, torch.Tensor]:
    images = int(plan.workload.batch.sequences) * count
    return {"pixel_values": torch.zeros(images, tower.num_channels, side, side)}


def _tiles(tower: Any, plan: Plan, count: int, side: int) -> dict[str, torch.Tensor]:
    """Return Llama 3.2 Vision's tiles with the masks that its processor makes."""
    batch, tiles = plan.workload.batch, tower.max_num_tiles
    sequences, length = int(batch.sequences), int(batch.sequence_length)
    integers = {"dtype": torch.int64}
    return {
        "pixel_values": torch.zeros(sequences, count, tiles, tower.num_channels, side, side),
        "aspect_ratio_ids": torch.ones(sequences, count, **integers),
        "aspect_ratio_mask": torch.ones(sequences, count, tiles, **integers),
        "cross_attention_mask": torch.ones(sequences, length, count, tiles, **integers),
    }
