"""What real optimizers keep of a tensor: run to print the rows of optimizers.toml.

Needs bitsandbytes, torchao and lion-pytorch beside torch; a part of them is enough for a part of
the rows. bitsandbytes initialises the states of one tensor without its kernels, which it has for
GPUs alone; what it pages there lies on the CPU like the rest.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import torch

SHAPES: Final = ((96, 64), (64,), (30, 211), (4096,), (4, 64, 96), (512, 256))
LIBRARIES: Final = {
    "adamw": "torch.optim:AdamW",
    "adam": "torch.optim:Adam",
    "sgd": "torch.optim:SGD",
    "sgd-momentum": "torch.optim:SGD",
    "adafactor": "torch.optim:Adafactor",
    "lion": "lion_pytorch:Lion",
    "adamw-8bit": "bitsandbytes.optim:AdamW8bit",
    "paged-adamw": "bitsandbytes.optim:PagedAdamW",
    "paged-adamw-8bit": "bitsandbytes.optim:PagedAdamW8bit",
    "adamw-8bit of torchao": "torchao.optim:AdamW8bit",
    "adamw-4bit": "torchao.optim:AdamW4bit",
}


def kept(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> list[int]:
    """Return the bytes of each storage that an optimizer keeps of a tensor, in ascending order."""
    module, _, kind = LIBRARIES[name].partition(":")
    made = getattr(import_module(module), kind)
    parameter = torch.nn.Parameter(torch.zeros(shape, dtype=dtype))
    parameter.grad = torch.zeros_like(parameter)
    options = {"momentum": 0.9} if name == "sgd-momentum" else {}
    optimizer = made([parameter], **options)
    _start(optimizer, parameter, module)
    state = optimizer.state[parameter]
    shared = ("step", "qmap1", "qmap2")  # on the host, or one for all tensors
    tensors = (t for key, value in state.items() if key not in shared for t in _tensors(value))
    return sorted(t.numel() * t.element_size() for t in tensors)


def _start(optimizer: Any, parameter: torch.nn.Parameter, module: str) -> None:
    """Make the states: by an update, or as the library's update begins."""
    if module.startswith("bitsandbytes"):
        optimizer.init_state(optimizer.param_groups[0], parameter, 0, 0)
    elif module.startswith("torchao"):
        for signed in (True, False):
            optimizer.state[parameter][str(signed)] = optimizer._new_buffer(parameter, signed)  # noqa: SLF001  # no public name makes them
    else:
        optimizer.step()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield a tensor, or those that a quantised one is made of."""
    if hasattr(value, "tensor_attrs"):
        yield from (getattr(value, name) for name in value.tensor_attrs)
    elif isinstance(value, torch.Tensor):
        yield value


def main(write: Callable[[str], object] = print) -> None:
    """Write every row that the installed libraries have."""
    for name, source in LIBRARIES.items():
        if find_spec(source.partition(".")[0].partition(":")[0]) is None:
            continue
        for word, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
            for shape in SHAPES:
                sizes = kept(name, shape, dtype)
                write("[[kept]]")
                write(f'optimizer = "{name}"\ndtype = "{word}"')
                write(f"shape = {list(shape)}\nstorages = {sizes}\n")


if __name__ == "__main__":
    main()
