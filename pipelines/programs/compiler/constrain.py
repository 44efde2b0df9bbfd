"""Layout constraints in modules before layout assignment, the state that TpuGraphs stores.

A ``LayoutConstraint`` custom call takes the place of the value it constrains, in every later use
and as the root; `with_layout_constraint` of JAX becomes the same call. Two attributes of the module
hold the modes of the program's inputs and outputs: ``default``, ``auto`` (the compiler chooses) or
an order such as ``{0,1}``, minor to major.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.hlo.messages import Message, instructions
from xlarank.data.schema import MAX_RANK
from xlarank.pipelines.programs.compiler.cycles import array_layouts

#: Instruction ids of newer modules hold the id of their computation in the upper half.
_COMPOSITE: Final = 1 << 32
DEFAULT: Final = "default"
AUTO: Final = "auto"
_MODES: Final = ("arg_layout_modes", "out_layout_modes")
_ENTRY_LAYOUT: Final = re.compile(r"entry_computation_layout=\{(.*?)\}(?:, \w+=|\n|$)")
Order = tuple[int, ...]


@dataclass(frozen=True)
class Layouts:
    """Output orders of operations, by node, and modes of inputs and of outputs."""

    orders: tuple[tuple[int, Order], ...]
    entry: tuple[tuple[str, ...], ...]

    def apply(self, module: Message) -> Message:
        """Return a copy of a module with these layouts."""
        return with_entry_modes(constrain(module, dict(self.orders)), *self.entry)

    def with_orders(self, orders: Mapping[int, Order]) -> Layouts:
        """Return these layouts with further orders of operations."""
        return replace(self, orders=tuple(sorted({**dict(self.orders), **orders}.items())))

    def with_entry(self, *entry: Sequence[Order]) -> Layouts:
        """Return these layouts with minor-to-major orders of all inputs, and of all outputs."""
        return replace(self, entry=tuple(tuple(map(_mode_of, orders)) for orders in entry))


def written_layouts(module: Message) -> Layouts:
    """Return a module's own layouts."""
    modes = entry_modes(module) or [[DEFAULT] * len(shapes) for shapes in entry_shapes(module)]
    return Layouts((), tuple(map(tuple, modes)))


def layouts_of(
    module: Message, nodes: Sequence[int] | NDArray[np.int64], rows: NDArray[Any]
) -> dict[int, Order]:
    """Return the output orders that a configuration ``rows (nodes, 18)`` sets, by node id.

    Dimensions that a row does not name follow in descending order. Layouts of operands are left to
    the compiler: constraining them adds copies that cancel one another, and the estimate no longer
    follows measurements.
    """
    nodes_of_module = [instruction for _, instruction in instructions(module)]
    orders = {}
    for node, row in zip(nodes, rows, strict=True):
        if named := [int(entry) for entry in row[:MAX_RANK] if entry >= 0]:
            rank = len(nodes_of_module[node].shape.dimensions)
            unnamed = [entry for entry in reversed(range(rank)) if entry not in named]
            orders[int(node)] = (*named, *unnamed)
    return orders


def constrain(module: Message, layouts: Mapping[int, Order]) -> Message:
    """Return a copy of the module with a constraint after each node that has a layout."""
    edited = deepcopy(module)
    last = max((instruction.id for _, instruction in instructions(module)), default=0)
    new_ids = count(last + 1)  # unique in the module
    first = 0
    for computation in edited.computations:
        size = len(computation.instructions)
        selected = {at: layouts[first + at] for at in range(size) if first + at in layouts}
        first += size
        if selected:
            if last >= _COMPOSITE:
                new_ids = count(max(instruction.id for instruction in computation.instructions) + 1)
            _constrain_computation(computation, selected, new_ids)
    return edited


def _constrain_computation(
    computation: Message, layouts: Mapping[int, Order], new_ids: Iterator[int]
) -> None:
    originals = list(map(deepcopy, computation.instructions))
    replaced: dict[int, int] = {}
    del computation.instructions[:]
    for at, instruction in enumerate(originals):
        operands = instruction.operand_ids
        operands[:] = [replaced.get(operand, operand) for operand in operands]
        computation.instructions.append(instruction)
        if at not in layouts:
            continue
        call_id = replaced[instruction.id] = next(new_ids)
        call = computation.instructions.add(
            name=f"layout_constraint.{call_id}",
            id=call_id,
            opcode="custom-call",
            operand_ids=[instruction.id],
            custom_call_target="LayoutConstraint",
            custom_call_api_version=1,
            constrain_layout=True,
        )
        call.shape.CopyFrom(instruction.shape)
        _set_layout(call.shape, layouts[at])
        call.operand_shapes_with_layout.add().CopyFrom(call.shape)
    computation.root_id = replaced.get(computation.root_id, computation.root_id)


def _set_layout(shape: Message, order: Order) -> None:
    shape.layout.Clear()
    shape.layout.minor_to_major.extend(order)


def entry_shapes(module: Message) -> tuple[list[Message], list[Message]]:
    """Return the shapes of inputs and outputs; a tuple of outputs is split into its elements."""
    result = module.host_program_shape.result
    return list(module.host_program_shape.parameters), list(result.tuple_shapes or [result])


def with_entry_modes(module: Message, inputs: Sequence[str], outputs: Sequence[str]) -> Message:
    """Return a copy with a mode for each input and output; orders also become entry layouts."""
    edited = deepcopy(module)
    drop_entry_modes(edited)
    for key, modes, shapes in zip(_MODES, (inputs, outputs), entry_shapes(edited), strict=True):
        edited.frontend_attributes.map.add(key=key, value=";".join(modes))
        for mode, shape in zip(modes, shapes, strict=True):
            if mode not in (DEFAULT, AUTO):
                _set_layout(shape, tuple(map(int, mode.strip("{}").split(","))))
    return edited


def drop_entry_modes(module: Message) -> None:
    """Remove the modes of inputs and outputs from a module."""
    attributes = module.frontend_attributes.map
    remaining = [attribute for attribute in attributes if attribute.key not in _MODES]
    del attributes[:]
    attributes.extend(remaining)


def entry_modes(module: Message) -> list[list[str]] | None:
    """Return the modes of inputs and of outputs in a module; None if all are the default."""
    attributes = module.frontend_attributes.map
    modes_by_key = {attribute.key: attribute.value.split(";") for attribute in attributes}
    inputs, outputs = (modes_by_key.get(key, []) for key in _MODES)
    return [inputs, outputs] if {*inputs, *outputs} - {DEFAULT} else None


def _mode_of(order: Order) -> str:
    """Return the mode that requests a minor-to-major order; scalars have the default."""
    return f"{{{','.join(map(str, order))}}}" if order else DEFAULT


def compiled_entry_layouts(text: str) -> tuple[list[Order], list[Order]]:
    """Return the minor-to-major layouts of inputs and outputs in the text of a compiled program.

    >>> compiled_entry_layouts(
    ...     "HloModule m, entry_computation_layout={(f32[8,4]{0,1:T(8)}, s32[])->bf16[8]{0}}"
    ... )
    ([(0, 1), ()], [(0,)])
    """
    header = _ENTRY_LAYOUT.search(text.partition("\n")[0])
    inputs, outputs = (header[1] if header else "->").split("->", 1)
    return array_layouts(inputs), array_layouts(outputs)
