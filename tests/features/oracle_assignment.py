"""Layout assignment of a single configuration, instruction by instruction.

Constraints are instructions of their own, inserted where the configuration sets a layout. What
operations do to layouts, and operand order, are taken from the code under test;
`tests.features.test_relayouts` checks these apart.
"""

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations
from math import prod
from typing import Any

from xlarank.features.layout.hardware import Demand, Hardware
from xlarank.features.layout.layout_demands import is_matrix
from xlarank.features.layout.layout_program import LayoutProgram

Layout = tuple[int, ...]


#: Operations whose operands may have any order.
UNORDERED = "constant tuple iota get-tuple-element while conditional parameter".split()


@dataclass
class Instruction:
    """An instruction, and the layouts of its output and of its operands (None while unknown)."""

    opcode: str
    node: int
    operands: list[int]
    dims: tuple[int, ...]
    set_layout: Layout | None = None
    written: Layout | None = None
    wanted: list[Layout | None] = field(default_factory=lambda: [None])


def row_major(rank: int) -> Layout:
    return tuple(range(rank))[::-1]


class Simulation:
    """One configuration: ``rows[k]`` is the type of row of configurable node k.

    The first instructions are the nodes themselves.
    """

    def __init__(self, program: LayoutProgram, hardware: Hardware, rows: list[int]) -> None:
        self.program = program
        self.hardware = hardware
        self.code: list[Instruction] = []
        #: Instruction that stands for the output of each node in later uses.
        self.standing: dict[int, int] = {}
        outputs, operands = self.layouts_set(rows)
        nodes = range(len(program.dims))
        for node in nodes:
            self.standing[node] = self.emit(program.opcode[node], node, [])
        for node, layout in outputs.items():
            self.standing[node] = self.emit("constraint", node, [node], layout)
        self.order: list[int] = []
        for node in nodes:
            reads = []
            for number, tensor in enumerate(program.operands[node]):
                reads.append(self.standing[tensor])
                if (node, number) in operands:
                    reads[-1] = self.emit("constraint", tensor, reads[-1:], operands[node, number])
                    self.order.append(reads[-1])
            self.code[node].operands = reads
            self.code[node].wanted = [None] * len(reads)
            self.order.append(node)
            if node in outputs:
                self.order.append(self.standing[node])
        #: Operands of activations that a convolution computes, but for the convolution itself.
        self.cut = {
            (node, number)
            for node, convolution in program.activations.items()
            for number, tensor in enumerate(program.operands[node])
            if tensor != convolution
            and not {convolution} & {*outputs}
            and (node, number) not in operands
        }
        self.results = [self.standing[node] for node in program.results]
        self.assign()

    def emit(
        self, opcode: str, node: int, operands: list[int], layout: Layout | None = None
    ) -> int:
        self.code.append(Instruction(opcode, node, operands, self.program.dims[node], layout))
        return len(self.code) - 1

    def layouts_set(self, rows: list[int]):
        """Layouts set for outputs, by node, and for operands, by node and number."""
        context = self.program.context
        program = self.program
        outputs: dict[int, Layout] = {}
        operands: dict[tuple[int, int], Layout] = {}
        for k, node in enumerate(context.graph.configurable.tolist()):
            for slot, choices in enumerate(context.slots.values()):
                tensor = int(context.slot_tensor[k, slot])
                if tensor < 0 or not choices.is_set[rows[k]] or not program.dims[tensor]:
                    continue
                layout = tuple(choices.layout[rows[k], : len(program.dims[tensor])].tolist())
                inputs = program.operands[node]
                if slot == 0:
                    outputs[node] = layout
                elif tensor in inputs:
                    in_place = inputs[slot - 1 : slot] == [tensor]
                    number = slot - 1 if in_place else inputs.index(tensor)
                    operands.setdefault((node, number), layout)
        return outputs, operands

    # ---- events; the last one added is handled first

    def write(self, at: int, layout: Layout, *, mandatory=False, last=False) -> None:
        one = self.code[at]
        if len(layout) != len(one.dims) or one.written == layout:
            return
        if one.written is None or mandatory:
            one.written = layout
            (self.queue.append if last else self.queue.appendleft)((at, None, layout))
            for other in self.program.merged.get(at, ()):
                self.write(other, layout)

    def want(self, at: int, number: int, layout: Layout, *, mandatory=False, last=False) -> None:
        one = self.code[at]
        known = one.wanted[number]
        if known != layout and (known is None or mandatory):
            one.wanted[number] = layout
            (self.queue.append if last else self.queue.appendleft)((at, number, layout))

    def assign(self) -> None:
        self.queue: deque[Any] = deque()
        phases = [self.set_parameters, self.set_results, self.set_by_backend]
        for phase in phases[::-1] if self.hardware.demands_last else phases:
            phase()
        for at in self.order:
            if self.code[at].set_layout is not None:
                self.write(at, self.code[at].set_layout)
                self.want(at, 0, self.code[at].set_layout)
        self.run()
        for at in self.order:
            one = self.code[at]
            if one.written is None and one.dims:
                self.write(at, row_major(len(one.dims)))
                self.run()

    def set_parameters(self) -> None:
        for at in self.order:
            if self.code[at].opcode == "parameter":
                self.write(at, self.program.preferred[self.code[at].node])

    def set_results(self) -> None:
        self.queue.appendleft(None)

    def set_by_backend(self) -> None:
        matrices = self.hardware.demands["dot"] == "matrices"
        for at in self.order[::-1] if self.hardware.readers_last else self.order:
            one = self.code[at]
            if one.opcode == "constraint":
                continue
            demand = self.hardware.demands.get(one.opcode)
            if demand is not None:
                for number, layout in self.demanded(at, demand):
                    if number < 0:
                        self.write(at, layout, mandatory=True)
                    else:
                        self.want(at, number, layout, mandatory=True)
            elif one.opcode == "transpose" and matrices and one.operands:
                source = self.code[one.operands[0]]
                order = self.program.permutation.get(one.node, ())[::-1]
                rank = len(order)
                groups = tuple(range(rank - 2)), (rank - 2,), (rank - 1,)
                if source.opcode == "dot" and order and self.readers_of_dot(one.operands[0]) == 1:
                    if is_matrix(order, groups):
                        self.want(at, 0, order, mandatory=True)
            elif self.hardware.row_major_operands and one.opcode not in UNORDERED:
                for number, operand in enumerate(one.operands):
                    self.want(at, number, row_major(len(self.code[operand].dims)))

    def before(self, at: int) -> Layout:
        """The layout in the module: set, or derived from the first operand, or row-major."""
        one = self.code[at]
        if one.set_layout is not None:
            return one.set_layout
        if one.node in self.program.permutation:
            permutation = self.program.permutation[one.node]
            return tuple(permutation.index(d) for d in self.before(one.operands[0]))
        if self.program.elementwise[one.node]:
            for operand in one.operands:
                if len(self.code[operand].dims) == len(one.dims):
                    return self.before(operand)
        return row_major(len(one.dims))

    def readers_of_dot(self, at: int) -> int:
        return sum(one.operands.count(at) for one in self.code)

    def demanded(self, at: int, demand: Demand):
        """Layouts that the back end demands of operands, by number, and of the output, -1."""
        one = self.code[at]
        groups = self.program.groups[one.node]
        demanded = []
        tensors = [*enumerate(one.operands)]
        tensors.insert(len(tensors) if demand == "matrices" else 0, (-1, at))
        for number, tensor in tensors:
            whole = row_major(len(self.code[tensor].dims))
            own = groups[number + 1]
            batch, second, third = (tuple(sorted(dims)[::-1]) for dims in own)  # minor-most first
            layouts = [whole]
            if demand == "batch-major" and batch:
                rest = [dimension for dimension in whole if dimension not in batch]
                layouts = [order + batch for order in permutations(rest)]
            elif demand == "batch-major":
                layouts = [self.program.preferred[self.code[tensor].node]]
            elif demand == "channels-last":
                layouts = [(*second, *third, *batch)]
                if number == 1:
                    layouts = [(*batch, *third, *second)]
            elif demand == "features-in-tiles":
                layouts = [(*second, *batch, *third), (*batch, *second, *third)]
            elif demand == "matrices":
                if not batch and len(second) < 2 and len(third) < 2:
                    continue
                if number >= 0:
                    options = (self.before(tensor), whole)
                    layouts = [layout for layout in options if is_matrix(layout, own)][:1]
                    layouts = layouts or [(*own[0], *own[2], *own[1])[::-1]]
            demanded.append((number, min(layouts, key=partial(self.tiled, tensor))))
        return demanded

    def run(self) -> None:
        while self.queue:
            event = self.queue.popleft()
            if event is None:
                for at in self.results:
                    self.write(at, self.returned(at))
            elif event[1] is None:
                if self.code[event[0]].written == event[2]:  # else it was replaced since
                    self.from_output(event[0], event[2])
            elif self.code[event[0]].wanted[event[1]] == event[2]:
                self.from_operand(*event)

    def from_output(self, at: int, layout: Layout) -> None:
        one = self.code[at]
        program = self.program
        if one.opcode != "constraint" and len(layout) > 1:
            for number, tensor in enumerate(program.operands[one.node]):
                if len(program.dims[tensor]) < 2:
                    continue
                if program.keeps[one.node]:
                    if len(program.dims[tensor]) == len(layout):
                        self.want(at, number, layout, mandatory=True)
                elif number == 0 and (source := program.to_operand(one.node, layout)):
                    mandatory = one.node in program.kept
                    last = not program.propagates_first(one.node)
                    self.want(at, 0, source, mandatory=mandatory, last=last)
        for reader in self.order:
            for number, operand in enumerate(self.code[reader].operands):
                if (reader, number) in self.cut:
                    continue
                if operand == at and self.code[reader].opcode != "tuple":
                    self.want(reader, number, layout)

    def from_operand(self, at: int, number: int, layout: Layout) -> None:
        one = self.code[at]
        program = self.program
        if len(layout) < 2:
            return
        if self.code[one.operands[number]].opcode != "tuple" and (at, number) not in self.cut:
            self.write(one.operands[number], layout)
        if one.opcode in ("constraint", "tuple"):
            return
        inputs = program.operands[one.node]
        if program.keeps[one.node]:
            volumes = [prod(program.dims[tensor]) for tensor in inputs]
            if one.opcode == "concatenate" and volumes[number] < max(volumes):
                return
            for other, tensor in enumerate(inputs):
                if tensor != inputs[number] and len(program.dims[tensor]) == len(layout):
                    self.want(at, other, layout, mandatory=True)
            self.write(at, layout, mandatory=True)
        elif number == 0 and (output := program.to_output(one.node, layout)) is not None:
            if len(output) > 1:
                mandatory = one.node in program.permutation or one.node in program.reduced
                last = not program.propagates_first(one.node)
                self.write(at, output, mandatory=mandatory, last=last)

    def returned(self, at: int) -> Layout:
        one = self.code[at]
        compact = self.program.preferred[one.node]
        return compact if self.hardware.compacts else row_major(len(one.dims))

    def tiled(self, at: int, layout: Layout) -> int:
        element = self.program.element_bytes[self.code[at].node]
        sizes = [self.code[at].dims[dimension] for dimension in layout]
        while len(sizes) > 1 and sizes[0] == 1:
            del sizes[0]
        multiples = (128, 8 * max(1, 4 // max(1, element)))
        for place, multiple in enumerate(multiples[: len(sizes)]):
            sizes[place] = (sizes[place] + multiple - 1) // multiple * multiple
        return prod(sizes) * element
