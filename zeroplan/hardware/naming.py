"""From what a driver calls a GPU to its profile."""

import re
from typing import Final

from zeroplan.errors import SpecError
from zeroplan.hardware.catalogue import Catalogue
from zeroplan.hardware.profile import Gpu

__all__ = ["gpu_of"]

WORD: Final = re.compile(r"[a-z0-9]+")
VENDORS: Final = frozenset({"nvidia", "amd", "instinct", "tesla", "geforce", "rtx"})
FORM_BY_MEMORY: Final = {"hbm3": "sxm5"}
"""H100s name their memory where they have a socket, and "PCIe" where they have not."""


def gpu_of(device: str, catalogue: Catalogue) -> Gpu:
    """Return the profile of a device as its driver names it ("NVIDIA H100 80GB HBM3").

    The model comes first in a profile's name and must be there; of those that share it the one with
    most words in common is taken.

    Raises
    ------
    SpecError
        No profile is of that model.
    """
    words = set(WORD.findall(device.lower())) - VENDORS
    words |= {form for memory, form in FORM_BY_MEMORY.items() if memory in words}
    same = [i for i in catalogue.gpu_ids() if words & {i.removeprefix("rtx-").split("-")[0]}]
    if not same:
        raise SpecError(
            f"{device!r} has no GPU profile: add one with --profiles, or name another GPU's."
        )
    best = max(same, key=lambda i: (len(words & set(i.split("-"))), -len(i)))
    return catalogue.gpu(best)
