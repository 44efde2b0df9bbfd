"""Shared intermediate results of a program graph, whatever its configurations are."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import OPCODE
from xlarank.features.program.node_facts import ProgramFacts
from xlarank.features.program.opcode_classes import OPCODE_CLASSES, OPCODE_GROUPS, opcode_group
from xlarank.features.program.roles import dot_split
from xlarank.features.program.slots import slot_tensors
from xlarank.features.program.tensors import Floats

#: Opcodes that only name or bundle what is there.
_FREE: Final = [
    OPCODE[name] for name in ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all")
]


class ProgramContext(ProgramFacts):
    """The facts of a graph, and what is inferred from them."""

    @cached_property
    def fused(self) -> NDArray[np.bool_]:
        """``(nodes,)`` whether a fusing compiler never stores the output (`fused_away`)."""
        return fused_away(self)

    @cached_property
    def flops(self) -> Floats:
        """``(nodes,)`` estimated floating-point operations.

        A convolution or dot multiplies and adds once for every output element and element summed over:
        2 |out| (kernel elements / output features), or 2 |out| K. A reduction touches every element of its
        largest operand (or of its output, where that is larger), any other operation every element of its
        output. What has no elements of its own (tuples, tokens) and what only names or bundles what is there
        (parameters, constants, bitcasts, ...) costs nothing.
        """
        work = np.where(self.element_bytes > 0, self.volume, 0.0)
        work[np.isin(self.graph.opcode, _FREE)] = 0.0
        reduces = self.opcode_class == OPCODE_CLASSES.index("reduce")
        mine = reduces[self.graph.edges[:, 0]]
        np.maximum.at(work, self.graph.edges[mine, 0], self.volume[self.graph.edges[mine, 1]])
        convolutions = np.flatnonzero(self.opcode_class == OPCODE_CLASSES.index("convolution"))
        if len(convolutions):
            kernel = slot_tensors(self, convolutions)[:, 2]
            feature = self.column("convolution_dim_numbers_kernel_output_feature_dim")[convolutions].astype(
                np.int64
            )
            summed = self.volume[kernel] / np.maximum(self.dims[kernel, feature], 1)
            work[convolutions] *= 2 * np.where(kernel >= 0, summed, 1.0)
        dots = np.flatnonzero(self.opcode_class == OPCODE_CLASSES.index("dot"))
        if len(dots):
            work[dots] *= 2 * dot_split(self, slot_tensors(self, dots))[2]
        return work


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
