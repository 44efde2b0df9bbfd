"""Sets of configurations as bits of integers, so that a decision is taken once for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from xlarank.features.layout.layout_mapping import Layout
from xlarank.features.program.tensors import Floats

#: A set of configurations: bit c stands for configuration c.
Mask = int
#: Layouts with the configurations that have them.
MaskedLayouts = list[tuple[Layout, Mask]]


def mask_of(flags: NDArray[np.bool_]) -> Mask:
    """Return the mask of a vector of flags, ``(configs,)``.

    >>> mask_of(np.array([True, False, True]))
    5
    """
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def unpacked(masks: Sequence[Mask], configs: int) -> Floats:
    """Return masks as flags, ``(configs, masks)``.

    >>> unpacked([5, 2], 3).tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """
    width = (configs + 7) // 8
    packed = np.frombuffer(b"".join(mask.to_bytes(width, "little") for mask in masks), np.uint8)
    bits = packed.reshape(len(masks), width)
    flags: NDArray[np.uint8] = np.unpackbits(bits, axis=1, count=configs, bitorder="little")
    return flags.T.astype(np.float64)


class Choices(dict[Layout, Mask]):
    """Layouts of one tensor, each with its configurations.

    Attributes:
        known: configurations that have a layout.
    """

    known: Mask = 0

    def add(self, layout: Layout, mask: Mask, *, mandatory: bool = False) -> Mask:
        """Give a layout to configurations without one, or to all if it is mandatory.

        Returns those whose layout changed.

        >>> choices = Choices()
        >>> choices.add((1, 0), 0b011), choices.add((0, 1), 0b110)
        (3, 4)
        """
        mask &= ~self.get(layout, 0)
        if not mandatory:
            mask &= ~self.known
        if not mask:
            return 0
        if mask & self.known:
            for other in self:
                self[other] &= ~mask
        self[layout] = self.get(layout, 0) | mask
        self.known |= mask
        return mask

    def replaced(self, others: Mapping[Layout, Mask]) -> Choices:
        """Return a copy in which some configurations have other layouts."""
        choices = Choices(self)
        choices.known = self.known
        for layout, mask in others.items():
            choices.add(layout, mask, mandatory=True)
        return choices
