"""Shared intermediate results of a program graph, whatever its configurations are."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import OPCODE
from xlarank.features.program.facts import ProgramFacts
from xlarank.features.program.fusion import fused_away
from xlarank.features.program.opcode_classes import OPCODE_CLASSES
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
        """``(nodes,)`` whether a fusing compiler never stores the output (`fusion.fused_away`)."""
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
