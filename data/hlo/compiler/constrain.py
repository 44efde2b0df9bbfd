"""Constraining of layouts in a module by ``LayoutConstraint`` custom calls, which XLA's layout assignment obeys.

The module must be as that pass sees it (what TpuGraphs stores). A call takes the place of the value it
constrains, in every later use and as the root. `with_layout_constraint` of JAX becomes the same call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import CompilerError
from xlarank.data.hlo.messages import HloModuleProto, Message, instructions
from xlarank.data.schema import MAX_RANK

TARGET: Final = "LayoutConstraint"
#: Custom calls know several conventions; 1 is the first, which takes no description.
_API_VERSION: Final = 1
#: Identities of newer modules hold their computation's in the upper half.
_COMPOSITE: Final = 1 << 32


def layouts_of(
    module: Message, nodes: Sequence[int] | NDArray[np.int64], rows: NDArray[Any]
) -> dict[int, tuple[int, ...]]:
    """Return the output layouts that a configuration ``rows (nodes, 18)`` sets: node id -> minor-to-major order.

    An order that names only the minor-most dimensions is completed by the others, the last dimension first.
    Operands are left to the compiler: constrained too, copies cancel one another and the estimate no longer
    follows what a TPU measures.
    Raises `CompilerError` for a node that is not in the module or an order that is not of its shape.
    """
    nodes_of_module = [instruction for _, instruction in instructions(module)]
    orders = {}
    for node, row in zip(nodes, rows, strict=True):
        if not 0 <= node < len(nodes_of_module):
            raise CompilerError(f"node {node} is not in the module", expected=f"0 to {len(nodes_of_module) - 1}")
        if named := [int(entry) for entry in row[:MAX_RANK] if entry >= 0]:
            instruction = nodes_of_module[node]
            orders[int(node)] = whole_order(named, instruction.shape, instruction.name)
    return orders


def whole_order(named: Sequence[int], shape: Message, of: str) -> tuple[int, ...]:
    """Return a permutation of a shape's dimensions that begins with the named ones, minor-most first.

    Raises `CompilerError` when they are not dimensions of the shape, each at most once.
    """
    rank = len(shape.dimensions)
    if len(set(named)) != len(named) or not set(named) <= set(range(rank)):
        raise CompilerError(
            f"the layout {list(named)} of {of} does not fit its {rank} dimensions",
            expected="every dimension at most once",
            do="take configurations that were made for this module",
        )
    return (*named, *(dimension for dimension in reversed(range(rank)) if dimension not in named))


def constrain(module: Message, layouts: Mapping[int, tuple[int, ...]]) -> Message:
    """Return a copy of the module with constraints after the nodes given, by `layouts_of`."""
    edited = HloModuleProto()
    edited.CopyFrom(module)
    numbering = _Numbering(module)
    node = 0
    for computation in edited.computations:
        here = {at: layouts[node + at] for at in range(len(computation.instructions)) if node + at in layouts}
        node += len(computation.instructions)
        if here:
            _constrain_computation(computation, here, numbering)
    return edited


def _constrain_computation(
    computation: Message, layouts: Mapping[int, tuple[int, ...]], numbering: _Numbering
) -> None:
    old = [
        type(instruction).FromString(instruction.SerializeToString()) for instruction in computation.instructions
    ]
    replaced: dict[int, int] = {}
    del computation.instructions[:]

    for at, instruction in enumerate(old):
        instruction.operand_ids[:] = [replaced.get(operand, operand) for operand in instruction.operand_ids]
        computation.instructions.append(instruction)
        if at not in layouts:
            continue
        number = numbering.take(computation)
        call = computation.instructions.add(
            name=f"layout_constraint.{number}",
            opcode="custom-call",
            custom_call_target=TARGET,
            id=number,
            operand_ids=[instruction.id],
            constrain_layout=True,
            custom_call_api_version=_API_VERSION,
        )
        call.shape.CopyFrom(instruction.shape)
        call.shape.layout.Clear()
        call.shape.layout.minor_to_major.extend(layouts[at])
        call.operand_shapes_with_layout.add().CopyFrom(call.shape)
        replaced[instruction.id] = call.id
    computation.root_id = replaced.get(computation.root_id, computation.root_id)


class _Numbering:
    """Fresh identities: unique in the module, and of their computation where identities are composite."""

    def __init__(self, module: Message) -> None:
        self.highest = {
            computation.id: max((instruction.id for instruction in computation.instructions), default=0)
            for computation in module.computations
        }
        last = max(self.highest.values(), default=0)
        self.shared = last < _COMPOSITE
        if self.shared:
            self.highest = dict.fromkeys(self.highest, last)

    def take(self, computation: Message) -> int:
        number = self.highest[computation.id] + 1
        for name in self.highest if self.shared else [computation.id]:
            self.highest[name] = number
        return number
