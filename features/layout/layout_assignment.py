"""Simulation of XLA's layout assignment for all configurations at once.

Source: xla/service/layout_assignment.cc of openxla/xla. Parameters and results have given layouts,
configurations constrain tensors, the back end demands layouts of some operations. Each of these is
propagated depth first: to the operands and readers of operations that keep a layout, through
transposes and reshapes, and to the operands of broadcasts. A mandatory layout replaces an optional
one: operations that keep layouts force one layout on all their tensors. Otherwise the first layout
assigned stays. An operand that is wanted in another layout than its producer writes is copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.features.layout.configuration_masks import Choices, Mask, MaskedLayouts, mask_of
from xlarank.features.layout.layout_demands import OUTPUT, demands, dot_order
from xlarank.features.layout.layout_mapping import Layout, renumbered, row_major
from xlarank.features.layout.layout_program import LayoutProgram

#: Opcode of an instruction that constrains a layout.
CONSTRAINT: Final = "constraint"
#: An operand: instruction and number.
Operand = tuple[int, int]


class Assignment:
    """Layouts of all tensors and operands under every configuration of a batch.

    Instructions are the program's nodes, then one constraint per constrained tensor. It is absent
    in configurations that leave the tensor's layout unset.

    Attributes:
        everything: all configurations.
        tensor: node whose output an instruction hands on, by instruction.
        dims, opcode: its shape, and its opcode or `CONSTRAINT`, by instruction.
        constraint: layouts that configurations set, by instruction, for constraints alone.
        order: instructions in the program's order.
        sources: instructions that an operand reads, each with its configurations.
        results: instructions that the program returns, each with its configurations.
        written: layouts of each instruction's output.
        wanted: layouts in which each operand is read.
    """

    def __init__(self, program: LayoutProgram, types: NDArray[np.integer]) -> None:
        """Assign layouts; ``types`` ``(configs, K)`` are the types of configurations' rows."""
        self.program = program
        self.everything: Mask = (1 << len(types)) - 1
        self.tensor = list(range(len(program.dims)))
        self.dims = list(program.dims)
        self.opcode = list(program.opcode)
        self.constraint: dict[int, Choices] = {}
        self.order: list[int] = []
        self.sources: dict[Operand, list[tuple[int, Mask]]] = {}
        self._outputs: dict[int, int] = {}
        self._connect(*self._constraints(types))
        self._readers: list[list[tuple[Operand, Mask]]] = [[] for _ in self.tensor]
        for operand, sources in self.sources.items():
            for instruction, mask in sources:
                self._readers[instruction].append((operand, mask))
        everywhere = (self._handed_on(node, self.everything) for node in program.results)
        self.results = [pair for pairs in everywhere for pair in pairs]
        self.written = [Choices() for _ in self.tensor]
        self.wanted = {operand: Choices() for operand in self.sources}
        self._assign()

    # ---- instructions

    def _constraints(
        self, types: NDArray[np.integer]
    ) -> tuple[dict[int, Choices], dict[Operand, Choices]]:
        """Return the constraints of outputs, by node, and of operands."""
        program = self.program
        context = self.program.context
        outputs: dict[int, Choices] = {}
        operands: dict[Operand, Choices] = {}
        for index, node in enumerate(context.graph.configurable.tolist()):
            tensors = context.slot_tensor[index].tolist()
            for row_type in np.unique(types[:, index]).tolist():
                mask = mask_of(types[:, index] == row_type)
                for number, rows in enumerate(context.slots.values(), OUTPUT):
                    tensor = tensors[number + 1]
                    if tensor < 0 or not program.dims[tensor] or not rows.is_set[row_type]:
                        continue
                    layout = tuple(rows.layout[row_type, : len(program.dims[tensor])].tolist())
                    inputs = program.operands[node]
                    if number == OUTPUT:
                        outputs.setdefault(node, Choices()).add(layout, mask)
                    elif tensor in inputs:
                        in_place = inputs[number : number + 1] == [tensor]
                        operand = node, number if in_place else inputs.index(tensor)
                        operands.setdefault(operand, Choices()).add(layout, mask)
        return outputs, operands

    def _connect(self, outputs: dict[int, Choices], operands: dict[Operand, Choices]) -> None:
        """Add the constraints, and connect all instructions."""
        for node, choices in outputs.items():
            self._outputs[node] = self._add(node, choices, [(node, choices.known)])
        for node, inputs in enumerate(self.program.operands):
            for number, tensor in enumerate(inputs):
                mask = self.everything & ~self._fused(node, tensor)
                sources: list[tuple[int, Mask]] = []
                if (node, number) in operands:
                    own = operands[node, number]
                    instruction = self._add(tensor, own, self._handed_on(tensor, own.known))
                    self.order.append(instruction)
                    sources = [(instruction, own.known)]
                    mask &= ~own.known
                self.sources[node, number] = sources + self._handed_on(tensor, mask)
            self.order.append(node)
            if node in self._outputs:
                self.order.append(self._outputs[node])

    def _add(self, tensor: int, choices: Choices, sources: list[tuple[int, Mask]]) -> int:
        """Add an instruction that constrains a tensor, and return its number."""
        instruction = len(self.tensor)
        self.tensor.append(tensor)
        self.dims.append(self.program.dims[tensor])
        self.opcode.append(CONSTRAINT)
        self.constraint[instruction] = choices
        self.sources[instruction, 0] = sources
        return instruction

    def _handed_on(self, node: int, mask: Mask) -> list[tuple[int, Mask]]:
        """Return what stands for a node's output: its constraint where set, else the node."""
        constrained = mask & self._constrained(node)
        pairs = (self._outputs.get(node, node), constrained), (node, mask & ~constrained)
        return [(instruction, part) for instruction, part in pairs if part]

    def _constrained(self, node: int) -> Mask:
        """Return where a node's output is constrained."""
        return self.constraint[self._outputs[node]].known if node in self._outputs else 0

    def _fused(self, node: int, tensor: int) -> Mask:
        """Return where a convolution computes a node, which then does not read ``tensor``."""
        convolution = self.program.activations.get(node)
        if convolution is None or tensor == convolution:
            return 0
        return self.everything & ~self._constrained(convolution)

    def result_layout(self, instruction: int) -> Layout:
        """Return the layout in which an instruction is returned."""
        if self.program.hardware.compacts:
            return self.program.preferred[self.tensor[instruction]]
        return row_major(len(self.dims[instruction]))

    # ---- propagation; the event added last is handled first

    def _assign(self) -> None:
        self._queue: deque[Callable[[], None]] = deque()
        steps = [
            self._set_parameters,
            lambda: self._queue.appendleft(self._set_results),
            self._set_demanded,
        ]
        for step in reversed(steps) if self.program.hardware.demands_last else steps:
            step()
        for instruction in self.order:
            for layout, mask in self.constraint.get(instruction, {}).items():
                self._set((instruction, OUTPUT), layout, mask)
                self._set((instruction, 0), layout, mask)
        self._propagate()
        for instruction in self.order:
            unknown = self.everything & ~self.written[instruction].known
            if instruction in self.constraint:
                unknown &= self.constraint[instruction].known
            if unknown and self.dims[instruction]:
                self._set((instruction, OUTPUT), row_major(len(self.dims[instruction])), unknown)
                self._propagate()

    def _propagate(self) -> None:
        while self._queue:
            self._queue.popleft()()

    def _set_parameters(self) -> None:
        for instruction in self.order:
            if self.opcode[instruction] == "parameter":
                layout = self.program.preferred[instruction]
                self._set((instruction, OUTPUT), layout, self.everything)

    def _set_results(self) -> None:
        for instruction, mask in self.results:
            self._set((instruction, OUTPUT), self.result_layout(instruction), mask)

    def _set_demanded(self) -> None:
        program = self.program
        nodes = [node for node in self.order if node not in self.constraint]
        for node in reversed(nodes) if program.hardware.readers_last else nodes:
            mandatory = program.opcode[node] in program.hardware.demands
            for number, layout, mask in demands(program, node, self.everything, self._existing):
                self._set((node, number), layout, mask, mandatory=mandatory)
            order = dot_order(program, node)
            if order is not None:
                dot = program.operands[node][0]
                mask = sum(part for source, part in self.sources[node, 0] if source == dot)
                self._set((node, 0), order, mask, mandatory=True)

    def _existing(self, operand: Operand) -> MaskedLayouts:
        """Return the layouts that an operand has in the module before layout assignment."""
        return self._read(operand, self._before)

    def _read(self, operand: Operand, outputs: Mapping[int, MaskedLayouts]) -> MaskedLayouts:
        """Return the layouts that an operand reads, given those of outputs."""
        return [
            (layout, mask & part)
            for source, part in self.sources[operand]
            for layout, mask in outputs[source]
            if mask & part
        ]

    @cached_property
    def _before(self) -> dict[int, MaskedLayouts]:
        """Layouts of each output before layout assignment.

        Elementwise operations and transposes take over the layouts of their first operand.
        """
        program = self.program
        before: dict[int, MaskedLayouts] = {}
        for instruction, choices in self.constraint.items():
            before[instruction] = [*choices.items()]
        for node in np.argsort(program.context.level, kind="stable").tolist():  # operands first
            rank = len(program.dims[node])
            ranks = [len(program.dims[tensor]) for tensor in program.operands[node]]
            if node in program.permutation:
                permutation = program.permutation[node]
                read = self._read((node, 0), before)
                before[node] = [(renumbered(layout, permutation), mask) for layout, mask in read]
            elif program.elementwise[node] and rank in ranks:
                before[node] = self._read((node, ranks.index(rank)), before)
            else:
                before[node] = [(row_major(rank), self.everything)]
        return before

    def _set(
        self,
        place: Operand,
        layout: Layout,
        mask: Mask,
        *,
        mandatory: bool = False,
        last: bool = False,
    ) -> None:
        """Set the layout of an operand, or of an output (number `OUTPUT`), and propagate it."""
        instruction, number = place
        is_output = number == OUTPUT
        if is_output and len(layout) != len(self.dims[instruction]):
            return
        choices = self.written[instruction] if is_output else self.wanted[place]
        taken = choices.add(layout, mask, mandatory=mandatory)
        if not taken:
            return
        propagate = self._from_output if is_output else self._from_operand
        queue = self._queue.append if last else self._queue.appendleft
        queue(partial(propagate, place, layout, taken))
        for other in self.program.merged.get(instruction, ()) if is_output else ():
            self._set((other, OUTPUT), layout, taken)  # slices of one output

    def _from_output(self, place: Operand, layout: Layout, mask: Mask) -> None:
        """Propagate the layout of an output to the instruction's operands and to its readers."""
        instruction, _ = place
        mask &= self.written[instruction].get(layout, 0)  # elsewhere it has been replaced
        if len(layout) > 1 and instruction not in self.constraint:
            self._to_operands(instruction, layout, mask)
        for operand, part in self._readers[instruction]:
            if self.opcode[operand[0]] != "tuple":
                self._set(operand, layout, mask & part)

    def _to_operands(self, instruction: int, layout: Layout, mask: Mask) -> None:
        program = self.program
        inputs = program.operands[instruction]
        if program.keeps[instruction]:
            for number, tensor in enumerate(inputs):
                if len(program.dims[tensor]) == len(layout):
                    self._set((instruction, number), layout, mask, mandatory=True)
        elif inputs and len(program.dims[inputs[0]]) > 1:
            source = program.to_operand(instruction, layout)
            if source is not None:
                mandatory = instruction in program.kept
                last = not program.propagates_first(instruction)
                self._set((instruction, 0), source, mask, mandatory=mandatory, last=last)

    def _from_operand(self, operand: Operand, layout: Layout, mask: Mask) -> None:
        """Propagate the layout wanted by an operand to its producer and through its reader."""
        if len(layout) < 2:
            return
        mask &= self.wanted[operand].get(layout, 0)
        for source, part in self.sources[operand]:
            if self.opcode[source] != "tuple":
                self._set((source, OUTPUT), layout, mask & part)
        instruction, number = operand
        program = self.program
        if self.opcode[instruction] in (CONSTRAINT, "tuple"):
            return
        if program.keeps[instruction]:
            self._through(instruction, number, layout, mask)
        elif number == 0:
            output = program.to_output(instruction, layout)
            if output is not None and len(output) > 1:
                mandatory = instruction not in program.reshapes
                last = not program.propagates_first(instruction)
                self._set((instruction, OUTPUT), output, mask, mandatory=mandatory, last=last)

    def _through(self, instruction: int, number: int, layout: Layout, mask: Mask) -> None:
        """Propagate a layout from one operand to the others and the output."""
        program = self.program
        inputs = program.operands[instruction]
        if program.opcode[instruction] == "concatenate":  # the largest operand decides
            volumes = [np.prod(program.dims[tensor], dtype=float) for tensor in inputs]
            if volumes[number] < max(volumes):
                return
        for other, tensor in enumerate(inputs):
            if tensor != inputs[number] and len(program.dims[tensor]) == len(layout):
                self._set((instruction, other), layout, mask, mandatory=True)
        self._set((instruction, OUTPUT), layout, mask, mandatory=True)
