"""Which element types a program computes with."""

from __future__ import annotations

import numpy as np

from xlarank.data.schema import ELEMENT_BYTES
from xlarank.features.block import Block, Scope
from xlarank.features.program.context import ProgramContext
from xlarank.features.program.tensors import Floats


class ElementTypes(Block):
    """Shares of nodes and of output bytes by element type; each sums to 1 (bytes to 0 without any)."""

    kinds = ("layout", "tile")
    scope = Scope.GRAPH
    columns = {
        **{f"elements__{name}__share": f"share of nodes with elements of type {name}" for name in ELEMENT_BYTES},
        **{f"elements__{name}_bytes__share": f"share of the bytes in type {name}" for name in ELEMENT_BYTES},
    }

    def compute(self, context: ProgramContext) -> Floats:
        nodes = np.bincount(context.element_type, minlength=len(ELEMENT_BYTES))
        written = np.bincount(context.element_type, context.bytes, minlength=len(ELEMENT_BYTES))
        return np.concatenate([nodes / context.graph.nodes, written / max(context.bytes.sum(), 1.0)])
