"""Some of many plans, taken out of their arrays and put back."""

import numpy as np

from zeroplan.timing.many_prices import Array, varies

__all__ = ["Some"]


class Some:
    """Some of many plans."""

    def __init__(self, those: Array) -> None:
        self.places, self._all = np.flatnonzero(those), len(those)

    def of(self, values: Array) -> Array:
        """Take their values out."""
        return values[..., self.places] if varies(values) else values

    def among(self, all_values: Array, values: Array) -> Array:
        """Put their values among those of all."""
        whole = np.array(np.broadcast_to(all_values, self._all))
        whole[self.places] = values
        return whole
