"""Classes of opcodes by their effect on layouts and time."""

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
#: Class names in column order; "other" are parameters, tuples, control flow and collectives.
OPCODE_CLASSES: Final[tuple[str, ...]] = (*_MEMBERS, "other")
#: Classes of configurable nodes in the layout search of TPUs.
COARSE_CLASSES: Final = ("convolution", "dot", "reshape", "other")


def _numbered(members: dict[str, str], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``numbers``, ``(opcodes,)``, filled in place with the member index of each listed opcode."""
    for number, names in enumerate(members.values()):
        numbers[[OPCODE[name] for name in names.split()]] = number
    return numbers


_CLASS_OF: Final = _numbered(_MEMBERS, np.full(len(OPCODES), len(_MEMBERS)))


def opcode_class(opcode: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index into `OPCODE_CLASSES` for each opcode.

    >>> [OPCODE_CLASSES[i] for i in opcode_class(np.array([OPCODE["dot"], OPCODE["add"], OPCODE["while"]]))]
    ['dot', 'elementwise', 'other']
    """
    return np.asarray(_CLASS_OF[opcode])


def coarse_class(classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index into `COARSE_CLASSES` for indices into `OPCODE_CLASSES` (the first three are the same)."""
    return np.asarray(np.minimum(classes, len(COARSE_CLASSES) - 1))


#: Finer groups, for instances, ordered by similarity because trees split on the index: heavy operations, data
#: movement, elementwise operations by cost.
_GROUPS: Final[dict[str, str]] = {
    "convolution": "convolution",
    "dot": "dot",
    "reduce": "reduce",
    "window": "reduce-window select-and-scatter sort batch-norm-grad batch-norm-inference batch-norm-training",
    "reshape": "reshape bitcast bitcast-convert dynamic-reshape",
    "transpose": "transpose",
    "copy": "copy reverse",
    "concatenate": "concatenate",
    "slice": "slice pad",
    "gather": "dynamic-slice dynamic-update-slice gather scatter",
    "broadcast": "broadcast iota rng rng-bit-generator rng-get-and-update-state",
    "transcendental": "atan2 cosine exponential exponential-minus-one log log-plus-one logistic power rsqrt sine "
    "sqrt tan tanh cbrt",
    "divide": "divide remainder",
}
#: Group names by number; "source" are parameters and constants.
OPCODE_GROUPS: Final[tuple[str, ...]] = (*_GROUPS, "elementwise", "source", "other")

_REST: Final = np.where(_CLASS_OF == list(_MEMBERS).index("elementwise"), len(_GROUPS), len(_GROUPS) + 2)
_GROUP_OF: Final = _numbered({**_GROUPS, "elementwise": "", "source": "parameter constant"}, _REST)


def opcode_group(opcode: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index into `OPCODE_GROUPS` for each opcode.

    >>> [OPCODE_GROUPS[i] for i in opcode_group(np.array([OPCODE[n] for n in ("tanh", "add", "parameter")]))]
    ['transcendental', 'elementwise', 'source']
    """
    return np.asarray(_GROUP_OF[opcode])
