"""What a layout does to a tensor, for each type of row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xlarank.features.program.tensors import (
    Floats,
    Ints,
    Tiling,
    largest_not_minor,
    minor_sizes,
    packed_waste,
    padding_waste,
)


@dataclass(frozen=True)
class TensorPhysics:
    """What a layout does to a tensor; every array is ``(tensors,)``.

    Attributes:
        waste: padded over true size under the tiling, minus 1.
        packed: the same with narrow elements packed and small tiles for few rows.
        violation: the largest dimension is not minor-most.
        minor_misfit: the minor-most size is no multiple of the lanes.
        second_misfit: the second minor-most size is no multiple of the sublanes.
    """

    waste: Floats
    packed: Floats
    violation: NDArray[np.bool_]
    minor_misfit: NDArray[np.bool_]
    second_misfit: NDArray[np.bool_]

    @classmethod
    def of(cls, dims: Ints, layout: Ints, element_bytes: Floats, tiling: Tiling) -> TensorPhysics:
        minor, second = minor_sizes(dims, layout)
        return cls(
            waste=padding_waste(dims, layout, tiling),
            packed=packed_waste(dims, layout, element_bytes, tiling),
            violation=largest_not_minor(dims, layout),
            minor_misfit=(layout[:, 0] >= 0) & (minor % tiling.lanes != 0),
            second_misfit=(layout[:, 1] >= 0) & (second % tiling.sublanes != 0),
        )


@dataclass(frozen=True)
class SlotRows:
    """One slot (output, input or kernel) of every type of row; arrays are ``(T,)``.

    Attributes:
        bytes: size of the tensor; 0 where the node has no such tensor.
        given: the row sets a layout.
        layout: ``(T, 6)`` the full layout: the one given, completed by the default.
        key: one number per full layout, for comparing.
        minor: size of the minor-most dimension, 0 for a scalar and where there is no tensor.
        changed: the full layout differs from the default.
        minor_changed: its minor-most dimension does.
        distance: share of dimension pairs ordered differently from the default.
        contiguity: how much a copy from the default moves in one piece, 0 to 1.
        now, default: physics of the full layout and of the default.
        total_bytes: bytes of this slot's tensors over all configurable nodes, at least 1.
        bytes_of_class: ``(4,)`` the same by `xlarank.features.program.opcode_classes.COARSE_CLASSES`.
    """

    bytes: Floats
    given: NDArray[np.bool_]
    layout: Ints
    key: Ints
    minor: Ints
    changed: NDArray[np.bool_]
    minor_changed: NDArray[np.bool_]
    distance: Floats
    contiguity: Floats
    now: TensorPhysics
    default: TensorPhysics
    total_bytes: float
    bytes_of_class: Floats
