"""Relayouts of a single configuration, and the quantities that their time depends on."""

from math import log2, prod

from tests.features.oracle_assignment import Layout, Simulation, row_major
from xlarank.features.layout.relayout_quantities import QUANTITIES

CHAIN = ("constraint", "transpose", "reshape", "bitcast", "copy")
#: Operations of one and of two operands, or of any number, that a copy moves behind.
SINKING = frozenset(
    "abs cbrt ceil convert cosine count-leading-zeros dynamic-slice exponential "
    "exponential-minus-one floor imag is-finite log log-plus-one logistic negate not pad popcnt "
    "real reduce-window reverse round-nearest-afz round-nearest-even rsqrt sign sine slice sqrt "
    "tan tanh "
    "add and atan2 compare complex divide maximum minimum multiply or power remainder shift-left "
    "shift-right-arithmetic shift-right-logical subtract xor "
    "concatenate".split()
)


class Relayouts(Simulation):
    """The copies of one configuration."""

    def __init__(self, program, hardware, rows) -> None:
        super().__init__(program, hardware, rows)
        #: Layouts of outputs and operands after copies were moved behind their readers.
        self.laid = [one.written for one in self.code]
        self.read = [list(one.wanted) for one in self.code]
        if self.hardware.sinks_copies:
            for at in self.order:
                self.sink(at)

    def sink(self, at: int) -> None:
        one = self.code[at]
        if one.opcode == "constraint":
            return
        numbers = [0] if one.node in self.program.reduced else []
        if one.opcode in SINKING:
            ranks = [len(self.program.dims[tensor]) for tensor in self.program.operands[one.node]]
            numbers = [n for n, rank in enumerate(ranks) if rank == len(one.dims) > 1]
        before = set()
        for number in numbers:
            source = self.laid[one.operands[number]]
            copied = source is not None and source != one.wanted[number]
            before.add(source if copied and (at, number) not in self.cut else None)
        if len(before) == 1 and None not in before:
            (layout,) = before
            for number in numbers:
                self.read[at][number] = layout
            if one.node not in self.program.reduced:
                self.laid[at] = layout

    def quantities(self) -> dict[str, float]:
        total = dict.fromkeys(QUANTITIES, 0.0)
        for at, before, after in self.chains():
            size = 2 * self.size(at)
            straight = self.minor(at, before) == self.minor(at, after)
            total["straight" if straight else "transposed"] += size
            total["transposes"] += not straight
            total["copies"] += 1
            total["padded"] += self.tiled(at, before) + self.tiled(at, after)
        for at, before, after, moved in self.copies():
            size = self.size(at)
            dims = self.code[at].dims
            step = 2
            if moved is not None:
                place = before.index(self.minor(at, after)) if self.minor(at, after) >= 0 else 0
                step = prod(dims[dimension] for dimension in before[:place])
            total["every_transposed" if step > 1 else "every_straight"] += 2 * size
            total["every_copies"] += 1
            total["every_padded"] += self.tiled(at, before) + self.tiled(at, after)
            total["strided"] += round(size * log2(1 + step))
        for at, one in enumerate(self.code):
            layout = one.written
            turned = one.written != row_major(len(one.dims))
            if one.set_layout is not None:
                total["constrained_turned"] += self.size(at) * turned
                total["constrained_padded"] += self.tiled(at, one.set_layout)
            elif one.opcode == "dot" and len(one.operands) == 2:
                strided = [self.reads_strided(at, number) for number in (0, 1)]
                total["strided_dots"] += round(self.program.flops[one.node]) * all(strided)
                total["half_strided_dots"] += round(self.program.flops[one.node]) * any(strided)
            elif one.node in self.program.reduced:
                wanted = self.read[at][0]
                if wanted and len(wanted) > 1:
                    dims = self.code[one.operands[0]].dims
                    minor = next((d for d in wanted if dims[d] != 1), -1)
                    if minor not in self.program.reduced[one.node]:
                        total["column_reduced"] += self.size(one.operands[0])
            elif self.program.keeps[one.node] and len(one.dims) > 1 and layout:
                total["turned"] += self.size(at) * turned
        return total

    def size(self, at: int) -> int:
        return prod(self.code[at].dims) * self.program.element_bytes[self.code[at].node]

    def minor(self, at: int, layout: Layout) -> int:
        return next((dimension for dimension in layout if self.code[at].dims[dimension] != 1), -1)

    def same(self, at: int, left: Layout | None, right: Layout | None) -> bool:
        if left is None or right is None:
            return False
        orders = ([d for d in order if self.code[at].dims[d] != 1] for order in (left, right))
        return next(orders) == next(orders)

    def reads_strided(self, at: int, number: int) -> bool:
        one = self.code[at]
        if one.wanted[number] is None:
            return False
        minor = self.minor(one.operands[number], one.wanted[number])
        _, _, contracted = self.program.groups[one.node][number + 1]
        return minor >= 0 and minor not in contracted

    def reads(self, layouts):
        """Reader's opcode, source, layout of everything that is read or returned."""
        for at, one in enumerate(self.code):
            for number, source in enumerate(one.operands):
                if (at, number) in self.cut:
                    continue
                if layouts[at][number] is not None and len(self.code[source].dims) > 1:
                    yield one.opcode, source, layouts[at][number]
        for at in self.results:
            if len(self.code[at].dims) > 1:
                yield "result", at, self.returned(at)

    def copies(self):
        found = set()
        for opcode, source, wanted in self.reads([one.wanted for one in self.code]):
            written = self.code[source].written
            if opcode != "tuple" and written is not None and written != wanted:
                found.add((source, written, wanted, wanted))
        for node in self.program.reshapes:
            one = self.code[node]
            if one.dims and one.written is not None and one.wanted[0] is not None:
                if not self.same(node, self.program.to_output(node, one.wanted[0]), one.written):
                    found.add((node, one.written, one.written, None))
        return found

    def chains(self):
        """Follow every read back over renaming operations, from copy to copy."""
        found = set()
        for opcode, source, wanted in self.reads(self.read):
            if opcode not in (*CHAIN, "tuple"):
                self.walk(source, wanted, found)
        return found

    def walk(self, at: int, unmoved: Layout, found: set) -> None:
        one = self.code[at]
        rank = len(one.dims)
        if one.opcode not in CHAIN or not one.operands:
            written = self.laid[at]
            if written is None or one.opcode in ("broadcast", "constant", "iota"):
                return
            free = self.same(at, written, unmoved)
            swaps = rank >= self.hardware.swapped_rank and one.node not in self.program.merged
            if one.opcode == "dot" and swaps and written == row_major(rank):
                last_two = set(unmoved[:2]) == {rank - 1, rank - 2}
                free |= last_two and unmoved[2:] == written[2:]
            if not free:
                found.add((at, written, unmoved))
            return
        source = unmoved
        if one.opcode == "transpose":
            source = self.program.to_operand(one.node, unmoved) or unmoved
        elif one.opcode in ("reshape", "bitcast"):
            source = self.program.to_operand(one.node, unmoved)
            if source is None:
                if one.written is None or one.wanted[0] is None:
                    return
                source = self.program.to_operand(one.node, one.written)
                own = one.written
                if source is None:
                    source = one.wanted[0]
                    own = self.program.to_output(one.node, source)
                if own is None:
                    source = row_major(len(self.code[one.operands[0]].dims))
                    own = row_major(rank)
                if not self.same(at, own, unmoved):
                    found.add((at, own, unmoved))
        if len(self.code[one.operands[0]].dims) == len(source) > 1:
            self.walk(one.operands[0], source, found)
