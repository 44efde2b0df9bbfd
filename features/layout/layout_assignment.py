"""Simulation of XLA's layout assignment for all configurations at once.

Source: xla/service/layout_assignment.cc of openxla/xla. Parameters and results have default layouts, configurations
constrain tensors, the back end demands layouts of some operations. Each of these is propagated depth first: to the
operands and users of operations that keep a layout, through transposes, reshapes and reductions. What is set first
stays. An operand that is wanted in another layout than its producer writes is copied.

Configurations are bits of integers (`Mask`): a decision that many configurations share is taken once, and its cost
hardly depends on their number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import LAYOUT_SLOTS
from xlarank.features.layout.hardware import Backend, Demand
from xlarank.features.layout.layout_mapping import Layout, inverse, permuted, row_major
from xlarank.features.layout.layout_program import (
    LayoutProgram,
    Passing,
    is_matrix,
    major_first,
    roles_of,
)
from xlarank.features.program.slots import CONVOLUTION_ROLES, DOT_ROLES

#: A set of configurations: bit c stands for configuration c.
Mask = int
#: Opcode of an instruction that constrains a layout.
CONSTRAINT: Final = "constraint"
#: A slot: (instruction, operand number).
Slot = tuple[int, int]


def mask_of(flags: NDArray[np.bool_]) -> Mask:
    """Return the mask of a vector of flags, ``(configs,)``.

    >>> mask_of(np.array([True, False, True]))
    5
    """
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


class Choices(dict[Layout, Mask]):
    """Layouts of one tensor, each with its configurations.

    Attributes:
        known, fixed: configurations that have a layout, and those whose layout cannot be replaced.
    """

    known: Mask = 0
    fixed: Mask = 0

    def add(
        self, layout: Layout, mask: Mask, *, fixed: bool = False, replace: bool = False
    ) -> Mask:
        """Give a layout to those configurations that may take it; return those that took it."""
        mask &= ~self.fixed & ~self.get(layout, 0)
        if not replace:
            mask &= ~self.known
        if not mask:
            return 0
        if mask & self.known:
            for other in self:
                self[other] &= ~mask
        self[layout] = self.get(layout, 0) | mask
        self.known |= mask
        if fixed:
            self.fixed |= mask
        return mask


@dataclass
class Constraint:
    """Layouts that configurations set for a node's output or one of its operands."""

    tensor: int
    layouts: dict[Layout, Mask] = field(default_factory=dict)

    @property
    def mask(self) -> Mask:
        return sum(self.layouts.values())  # the masks are disjoint


class Assignment:
    """Layouts of all tensors and operands under every configuration of a batch.

    Instructions are the program's nodes, then one for each constrained tensor; in configurations that do not set
    it, that instruction does not exist.

    Attributes:
        tensor, dims: node whose tensor an instruction hands on, and its shape, by instruction.
        opcode: opcodes, `CONSTRAINT` for instructions that configurations add.
        written: layouts of each instruction's output.
        wanted: layouts in which each operand is read.
        sources: instructions that an operand reads, each with its configurations.
        results: instructions that the program returns, each with its configurations.
    """

    def __init__(
        self, program: LayoutProgram, backend: Backend, types: NDArray[np.integer], configs: int
    ) -> None:
        self.program, self.backend = program, backend
        self.everything: Mask = (1 << configs) - 1
        self.tensor = list(range(len(program.dims)))
        self.dims = list(program.dims)
        self.opcode = list(program.opcode)
        self.constraint: dict[int, Constraint] = {}
        self.sources: dict[Slot, list[tuple[int, Mask]]] = {}
        self._outputs: dict[int, int] = {}
        self._build(types)
        self.readers: list[list[tuple[Slot, Mask]]] = [[] for _ in self.tensor]
        for slot, sources in self.sources.items():
            for instruction, mask in sources:
                self.readers[instruction].append((slot, mask))
        self.results = [
            pair for node in program.results for pair in self._handed_on(node, self.everything)
        ]
        previous: list[Choices] | None = None
        for _ in range(backend.rounds):
            self.written = [Choices() for _ in self.tensor]
            self.wanted = {slot: Choices() for slot in self.sources}
            self._queue: deque[Callable[[], None]] = deque()
            self._assign(previous)
            previous = self.written

    # ---- instructions

    def _handed_on(self, node: int, mask: Mask) -> list[tuple[int, Mask]]:
        """Return the instructions that stand for a node's output: its constraint where set, else the node."""
        constraint = self._outputs.get(node)
        if constraint is None:
            return [(node, mask)]
        constrained = mask & self.constraint[constraint].mask
        pairs = [(constraint, constrained), (node, mask & ~constrained)]
        return [(instruction, part) for instruction, part in pairs if part]

    def _build(self, types: NDArray[np.integer]) -> None:
        """Add the constraints, and connect instructions in the program's order."""
        outputs, operands = self._constraints(types)
        for node, constraint in outputs.items():
            self._outputs[node] = self._add(constraint, [(node, constraint.mask)])
        self.order: list[int] = []
        for node, inputs in enumerate(self.program.operands):
            for number, tensor in enumerate(inputs):
                mask = self.everything & ~self._cut(node, tensor)
                sources = []
                if constraint := operands.get((node, number)):
                    instruction = self._add(constraint, self._handed_on(tensor, constraint.mask))
                    self.order.append(instruction)
                    sources = [(instruction, constraint.mask)]
                    mask &= ~constraint.mask
                self.sources[node, number] = sources + (
                    self._handed_on(tensor, mask) if mask else []
                )
            self.order.append(node)
            if node in self._outputs:
                self.order.append(self._outputs[node])

    def _cut(self, node: int, tensor: int) -> Mask:
        convolution = self.program.activations.get(node)
        if convolution is None or tensor == convolution:
            return 0
        constraint = self._outputs.get(convolution)
        return self.everything & ~(self.constraint[constraint].mask if constraint is not None else 0)

    def _add(self, constraint: Constraint, sources: list[tuple[int, Mask]]) -> int:
        instruction = len(self.tensor)
        self.tensor.append(constraint.tensor)
        self.dims.append(self.program.dims[constraint.tensor])
        self.opcode.append(CONSTRAINT)
        self.constraint[instruction] = constraint
        self.sources[instruction, 0] = sources
        return instruction

    def _constraints(
        self, types: NDArray[np.integer]
    ) -> tuple[dict[int, Constraint], dict[Slot, Constraint]]:
        """Return the constraints of outputs and of operands; ``types`` ``(configs, K)`` are types of rows."""
        program, facts = self.program, self.program.facts
        outputs: dict[int, Constraint] = {}
        operands: dict[Slot, Constraint] = {}
        for index, node in enumerate(facts.graph.configurable.tolist()):
            for row_type in np.unique(types[:, index]).tolist():
                mask = mask_of(types[:, index] == row_type)
                for slot, (name, rows) in enumerate(facts.slots.items()):
                    tensor = int(facts.slot_tensor[index, slot])
                    if not rows.is_set[row_type] or tensor < 0:
                        continue
                    rank = len(program.dims[tensor])
                    layout = tuple(rows.layout[row_type, :rank].tolist())
                    if name == LAYOUT_SLOTS[0]:
                        constraint = outputs.setdefault(node, Constraint(tensor))
                    elif tensor in program.operands[node]:
                        inputs = program.operands[node]
                        in_place = slot - 1 < len(inputs) and inputs[slot - 1] == tensor
                        number = slot - 1 if in_place else inputs.index(tensor)
                        constraint = operands.setdefault((node, number), Constraint(tensor))
                    else:
                        continue
                    free = mask & ~constraint.mask
                    if free and rank > 0:
                        constraint.layouts[layout] = constraint.layouts.get(layout, 0) | free
        return (
            {node: constraint for node, constraint in outputs.items() if constraint.layouts},
            {slot: constraint for slot, constraint in operands.items() if constraint.layouts},
        )

    def result_layout(self, instruction: int) -> Layout:
        """Return the layout in which an instruction is returned."""
        if self.backend.compacts:
            return self.program.preferred[self.tensor[instruction]]
        return row_major(len(self.dims[instruction]))

    # ---- propagation

    def _assign(self, previous: list[Choices] | None) -> None:
        for setting in (self._mandatory, self._returned, lambda: self._demanded(previous)):
            waiting = self._queue
            self._queue = deque()
            setting()  # the last one set is propagated first
            self._queue = waiting + self._queue
        self._propagate()
        for instruction in self.order:
            unknown = self.everything & ~self.written[instruction].known
            if instruction in self.constraint:
                unknown &= self.constraint[instruction].mask
            if unknown and self.dims[instruction]:
                self._write(instruction, row_major(len(self.dims[instruction])), unknown)
                self._propagate()

    def _propagate(self) -> None:
        while self._queue:
            self._queue.popleft()()

    def _write(
        self, instruction: int, layout: Layout, mask: Mask, *, fixed: bool = False, replace: bool = False,
        last: bool = False,
    ) -> None:  # fmt: skip
        if len(layout) != len(self.dims[instruction]):
            return
        mask = self.written[instruction].add(layout, mask, fixed=fixed, replace=replace)
        if mask:
            self._push(lambda: self._from_output(instruction, layout, mask), last)

    def _want(
        self, slot: Slot, layout: Layout, mask: Mask, *, fixed: bool = False, replace: bool = False,
        last: bool = False,
    ) -> None:  # fmt: skip
        mask = self.wanted[slot].add(layout, mask, fixed=fixed, replace=replace)
        if mask:
            self._push(lambda: self._from_operand(slot, layout, mask), last)

    def _push(self, event: Callable[[], None], last: bool) -> None:
        if last:
            self._queue.append(event)
        else:
            self._queue.appendleft(event)

    def _mandatory(self) -> None:
        for instruction in self.order:
            if instruction in self.constraint:
                for layout, mask in self.constraint[instruction].layouts.items():
                    self._write(instruction, layout, mask, fixed=True)
                    self._want((instruction, 0), layout, mask, fixed=True)
            elif self.program.opcode[instruction] == "parameter":
                self._write(
                    instruction, self.program.preferred[instruction], self.everything, fixed=True
                )

    def _returned(self) -> None:
        def event() -> None:
            for instruction, mask in self.results:
                self._write(instruction, self.result_layout(instruction), mask)

        self._push(event, last=False)

    def _demanded(self, previous: list[Choices] | None) -> None:
        for instruction in self.order:
            if instruction not in self.constraint:
                for number, layout, mask in demands(self, instruction, previous):
                    if number < 0:
                        self._write(instruction, layout, mask, fixed=True, replace=True)
                    else:
                        fixed = self.program.opcode[instruction] in self.backend.demands
                        self._want((instruction, number), layout, mask, fixed=fixed, replace=fixed)

    def _from_output(self, instruction: int, layout: Layout, mask: Mask) -> None:
        """Propagate a layout of an output to its readers and to the instruction's operands."""
        mask &= self.written[instruction].get(layout, 0)
        for slot, part in self.readers[instruction]:
            if self.opcode[slot[0]] != "tuple":
                self._want(slot, layout, mask & part)
        if len(layout) < 2 or instruction in self.constraint:
            return
        program = self.program
        for number, tensor in enumerate(program.operands[instruction]):
            slot = (instruction, number)
            if len(program.dims[tensor]) < 2:
                continue
            if program.passing[instruction] is Passing.KEEPS:
                if len(program.dims[tensor]) == len(layout):
                    self._want(slot, layout, mask, fixed=True, replace=True)
            elif number == 0 and (source := program.to_operand(instruction, layout)) is not None:
                self._want(
                    slot, source, mask, replace=True, last=not program.keeps_order(instruction)
                )

    def _from_operand(self, slot: Slot, layout: Layout, mask: Mask) -> None:
        """Propagate a layout wanted by an operand to its producer, and through the instruction that reads it."""
        mask &= self.wanted[slot].get(layout, 0)
        for source, part in self.sources[slot]:
            if self.opcode[source] != "tuple":
                self._write(source, layout, mask & part)
        instruction, number = slot
        program = self.program
        if len(layout) < 2 or instruction in self.constraint or self.opcode[instruction] == "tuple":
            return
        if program.passing[instruction] is Passing.KEEPS:
            self._through_keeping(instruction, number, layout, mask)
        elif number == 0 and (output := program.to_output(instruction, layout)) is not None:
            is_reduction = instruction in program.reduced
            if len(output) > 1 or is_reduction:
                last = not program.keeps_order(instruction)
                self._write(instruction, output, mask, fixed=is_reduction, last=last)

    def _through_keeping(self, instruction: int, number: int, layout: Layout, mask: Mask) -> None:
        program, rank = self.program, len(layout)
        inputs = program.operands[instruction]
        if program.opcode[instruction] == "concatenate":  # the largest operand decides
            volume = [np.prod(program.dims[tensor], dtype=float) for tensor in inputs]
            if volume[number] < max(volume):
                return
        for other, tensor in enumerate(inputs):
            if tensor != inputs[number] and len(program.dims[tensor]) == rank:
                self._want((instruction, other), layout, mask)
        if len(program.dims[instruction]) == rank:
            self._write(instruction, layout, mask)


def demands(
    assignment: Assignment, node: int, previous: list[Choices] | None
) -> Iterator[tuple[int, Layout, Mask]]:
    """Yield (operand number, -1 for the output; layout; configurations) that the back end demands of a node."""
    program, backend = assignment.program, assignment.backend
    opcode, everything = program.opcode[node], assignment.everything
    inputs, rank = program.operands[node], len(program.dims[node])
    demand = backend.demands.get(opcode)
    tensors = [(-1, node), *enumerate(inputs)]
    if demand is Demand.ROW_MAJOR:
        for number, tensor in tensors:
            yield number, row_major(len(program.dims[tensor])), everything
    elif demand is Demand.PREFERRED:
        for number, tensor in tensors:
            yield number, program.preferred[tensor], everything
    elif demand is Demand.CHANNELS_LAST:
        batch, feature, spatial = map(CONVOLUTION_ROLES.index, ("batch", "feature", "spatial"))
        for number, tensor in tensors:
            order = (feature, spatial, batch) if number == 1 else (batch, spatial, feature)
            sizes = len(program.dims[tensor])
            groups = [roles_of(program.roles[node][number + 1], sizes, role) for role in order]
            yield number, major_first(*groups), everything
    elif demand is Demand.FEATURES_IN_TILES:
        batch, feature, spatial = map(CONVOLUTION_ROLES.index, ("batch", "feature", "spatial"))
        for number, tensor in tensors:
            roles, sizes = program.roles[node][number + 1], len(program.dims[tensor])
            groups = [roles_of(roles, sizes, role) for role in (spatial, batch, feature)]
            orders = major_first(*groups), major_first(groups[0], groups[2], groups[1])
            yield (
                number,
                min(orders, key=lambda order: program.padded_bytes(tensor, order)),
                everything,
            )
    elif demand is Demand.MATRICES:
        yield from _matrix_demands(assignment, node, previous)
    elif opcode == "transpose" and Demand.MATRICES in backend.demands.values() and inputs:
        # the output of a dot is written as the transpose wants it, if the dot can
        order = major_first(program.permutation.get(node, ()))
        only = program.opcode[inputs[0]] == "dot" and len(assignment.readers[inputs[0]]) == 1
        if only and order and is_matrix(order, _output_groups(len(order))):
            yield 0, order, everything
    elif backend.operands is Demand.ROW_MAJOR and opcode not in _UNDEMANDING:
        for number, tensor in enumerate(inputs):
            yield number, row_major(len(program.dims[tensor])), everything


#: Opcodes of which no order is demanded.
_UNDEMANDING = frozenset(
    "parameter constant tuple iota get-tuple-element while conditional".split()
)


def _output_groups(rank: int) -> tuple[Layout, Layout, Layout]:
    return tuple(range(rank - 2)), tuple(range(max(0, rank - 2), rank - 1)), (rank - 1,)


def _matrix_demands(
    assignment: Assignment, node: int, previous: list[Choices] | None
) -> Iterator[tuple[int, Layout, Mask]]:
    """Yield demands of a dot with batch dimensions, or several of one role.

    An operand keeps the layout that it has if that is a matrix; otherwise it is row-major if that is one, or else
    batch, rows, contracted. An operand that is a transpose is folded into the dot.
    """
    program = assignment.program
    for number, tensor in enumerate(program.operands[node]):
        rank = len(program.dims[tensor])
        roles = program.roles[node][number + 1]
        batch, rows, contracted = (
            roles_of(roles, rank, DOT_ROLES.index(role)) for role in DOT_ROLES
        )
        if not batch and len(rows) < 2 and len(contracted) < 2:
            continue
        left = assignment.everything
        candidates = _existing_layouts(assignment, (node, number), previous)
        candidates.append((row_major(rank), left))
        for layout, mask in candidates:
            if is_matrix(layout, (batch, rows, contracted)) and mask & left:
                yield number, layout, mask & left
                left &= ~mask
        if left:
            yield number, major_first(batch, rows, contracted), left
    batches, row_dimensions = program.split[node]
    rank = len(program.dims[node])
    if batches or row_dimensions > 1 or rank - batches - row_dimensions > 1:
        yield -1, row_major(rank), assignment.everything


def _existing_layouts(
    assignment: Assignment, slot: Slot, previous: list[Choices] | None
) -> list[tuple[Layout, Mask]]:
    """Return the layouts that an operand has before the back end's demands, the preferred ones first."""
    program = assignment.program
    before, own = [], []
    for source, part in assignment.sources[slot]:
        if previous is not None:
            before += [(layout, mask & part) for layout, mask in previous[source].items()]
        if source in assignment.constraint:
            layouts = assignment.constraint[source].layouts
            own += [(layout, mask & part) for layout, mask in layouts.items()]
        elif source in program.permutation:
            back = inverse(program.permutation[source])
            for origin, part_of_origin in assignment.sources[source, 0]:
                default = {row_major(len(assignment.dims[origin])): assignment.everything}
                constraint = assignment.constraint.get(origin)
                layouts = constraint.layouts if constraint else default
                own += [
                    (permuted(layout, back), mask & part & part_of_origin)
                    for layout, mask in layouts.items()
                ]
    return before + own
