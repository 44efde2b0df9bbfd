"""Opcodes in finer groups than `program.opcode_classes`, for instances: a tree splits their number."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import OPCODE, OPCODES
from xlarank.features.program.opcode_classes import OPCODE_CLASSES, opcode_class

#: Neighbouring numbers are alike: heavy operations first, then those that move data, then elementwise ones by
#: what an element costs, then what costs nothing.
_MEMBERS: Final[dict[str, str]] = {
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
#: Group names by number: those above, other elementwise operations, parameters and constants, and the rest.
OPCODE_GROUPS: Final[tuple[str, ...]] = (*_MEMBERS, "elementwise", "source", "other")

_ELEMENTWISE: Final = opcode_class(np.arange(len(OPCODES))) == OPCODE_CLASSES.index("elementwise")
_GROUP_OF: Final = np.where(_ELEMENTWISE, OPCODE_GROUPS.index("elementwise"), OPCODE_GROUPS.index("other"))
for _number, _names in enumerate([*_MEMBERS.values(), "", "parameter constant"]):
    for _name in _names.split():
        _GROUP_OF[OPCODE[_name]] = _number


def opcode_group(opcode: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index into `OPCODE_GROUPS` for each opcode.

    >>> [OPCODE_GROUPS[i] for i in opcode_group(np.array([OPCODE[n] for n in ("tanh", "add", "parameter")]))]
    ['transcendental', 'elementwise', 'source']
    """
    groups: NDArray[np.int64] = _GROUP_OF[opcode]
    return groups
