"""Which intermediate results a fusing compiler never stores.

XLA fuses a producer into its consumers' loops, so most elementwise results are never written to memory. A layout
that is set on such a tensor forces it to be stored after all: on XLA:CPU even the default layout, when set, splits
the loop in two. The rules simplify those of XLA's instruction fusion.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.features.program.facts import ProgramFacts
from xlarank.features.program.opcode_classes import OPCODE_GROUPS, opcode_group

_FUSIBLE: Final = (
    *("reshape", "transpose", "copy", "concatenate", "slice", "gather", "broadcast"),
    *("transcendental", "divide", "elementwise"),
)
#: Not worth computing twice.
_EXPENSIVE: Final = ("transcendental", "divide")
#: An operand at least this share of the output is read as often as the output is computed.
_LARGE_OPERAND: Final = 0.5


def fused_away(facts: ProgramFacts) -> NDArray[np.bool_]:
    """``(nodes,)`` whether a fusing compiler never stores the node's output.

    The operation and all its consumers (at least one) run as loops over elements, and it is no root. With several
    consumers it is computed once in each, which does not pay for what is expensive or reads more than one large
    operand; a broadcast would compute an expensive operand many times over.
    """
    group = opcode_group(facts.graph.opcode)
    fusible, expensive = _among(group, _FUSIBLE), _among(group, _EXPENSIVE)
    broadcast = _among(group, ("broadcast",))
    consumers = facts.consumers
    fan_out = np.diff(consumers.indptr)
    operand = facts.operands.tocoo()
    large = (facts.volume[operand.col] > 1) & (
        facts.volume[operand.col] >= _LARGE_OPERAND * facts.volume[operand.row]
    )
    large_operands = np.bincount(operand.row[large], minlength=facts.graph.nodes)
    once = ~expensive & (large_operands <= 1)
    fused: NDArray[np.bool_] = (
        fusible
        & (facts.column("is_root") == 0)
        & (fan_out > 0)
        & (consumers @ fusible.astype(np.float64) == fan_out)
        & ((fan_out == 1) | once)
        & ~(expensive & (consumers @ broadcast.astype(np.float64) > 0))
    )
    return fused


def _among(group: NDArray[Any], names: tuple[str, ...]) -> NDArray[np.bool_]:
    return np.isin(group, [OPCODE_GROUPS.index(name) for name in names])
