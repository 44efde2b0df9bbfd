"""Opcodes by what they do to a tensor's layout and how they cost time."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import OPCODE, OPCODES

_MEMBERS: Final[dict[str, str]] = {
    "convolution": "convolution",
    "dot": "dot",
    "reshape": "reshape bitcast bitcast-convert dynamic-reshape",
    "transpose": "transpose copy reverse",
    "reduce": "reduce reduce-window select-and-scatter sort batch-norm-grad batch-norm-inference "
    "batch-norm-training",
    "broadcast": "broadcast iota constant rng rng-bit-generator rng-get-and-update-state",
    "slice": "slice dynamic-slice dynamic-update-slice concatenate pad gather scatter",
    "elementwise": "abs add atan2 ceil clamp count-leading-zeros compare complex convert cosine divide "
    "exponential exponential-minus-one floor imag is-finite log log-plus-one and not or xor maximum minimum "
    "multiply negate popcnt power real reduce-precision remainder round-nearest-afz rsqrt select shift-left "
    "shift-right-arithmetic shift-right-logical sign sine sqrt subtract tanh cbrt logistic "
    "round-nearest-even stochastic-convert tan map",
}
#: Class names in column order; what no class names is "other" (parameters, tuples, control flow, collectives).
OPCODE_CLASSES: Final[tuple[str, ...]] = (*_MEMBERS, "other")

#: What a configurable node is to TPU's layout search: convolution, dot and reshape choose, the rest is other.
COARSE_CLASSES: Final = ("convolution", "dot", "reshape", "other")

_CLASS_OF: Final = np.full(len(OPCODES), len(_MEMBERS))
for _number, _names in enumerate(_MEMBERS.values()):
    for _name in _names.split():
        _CLASS_OF[OPCODE[_name]] = _number


def opcode_class(opcode: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index into `OPCODE_CLASSES` for each opcode.

    >>> [OPCODE_CLASSES[i] for i in opcode_class(np.array([OPCODE["dot"], OPCODE["add"], OPCODE["while"]]))]
    ['dot', 'elementwise', 'other']
    """
    classes: NDArray[np.int64] = _CLASS_OF[opcode]
    return classes


def coarse_class(classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index into `COARSE_CLASSES` for each index into `OPCODE_CLASSES` (whose first three are the same)."""
    coarse: NDArray[np.int64] = np.minimum(classes, len(COARSE_CLASSES) - 1)
    return coarse
