"""Relayouts of a single configuration, and the quantities that their time depends on."""

from math import log2, prod

from tests.features.oracle_assignment import Layout, Simulation, row_major
from xlarank.features.layout.layout_program import Passing
from xlarank.features.layout.relayout_quantities import QUANTITIES
from xlarank.features.program.slots import DOT_ROLES

CHAIN = ("constraint", "transpose", "reshape", "bitcast", "copy")


class Relayouts(Simulation):
    """The copies of one configuration."""

    def quantities(self) -> dict[str, float]:
        total = dict.fromkeys(QUANTITIES, 0.0)
        for at, before, after, moved in self.chains():
            size = 2 * self.size(at)
            straight = moved is not None and self.minor(at, before) == self.minor(at, after)
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
                wanted = one.wanted[0]
                if wanted and len(wanted) > 1:
                    dims = self.code[one.operands[0]].dims
                    minor = next((d for d in wanted if dims[d] != 1), -1)
                    if minor not in self.program.reduced[one.node]:
                        total["column_reduced"] += self.size(one.operands[0])
            elif self.program.passing[one.node] is Passing.KEEPS and len(one.dims) > 1 and layout:
                total["turned"] += self.size(at) * turned
        return total

    def size(self, at: int) -> int:
        return prod(self.code[at].dims) * self.program.element_bytes[self.code[at].node]

    def minor(self, at: int, layout: Layout) -> int:
        return next((dimension for dimension in layout if self.code[at].dims[dimension] != 1), -1)

    def same(self, at: int, left: Layout | None, right: Layout | None) -> bool:
        if left is None or right is None:
            return False
        return [d for d in left if self.code[at].dims[d] != 1] == [
            d for d in right if self.code[at].dims[d] != 1
        ]

    def reads_strided(self, at: int, number: int) -> bool:
        one = self.code[at]
        if one.wanted[number] is None:
            return False
        minor = self.minor(one.operands[number], one.wanted[number])
        return minor >= 0 and self.program.roles[one.node][number + 1][minor] != DOT_ROLES.index(
            "contracted"
        )

    def reads(self):
        """Reader's opcode, source, layout of everything that is read or returned."""
        for one in self.code:
            for number, source in enumerate(one.operands):
                if one.opcode == "maximum" and (one.node, number) in self.cut:
                    continue
                if one.wanted[number] is not None and len(self.code[source].dims) > 1:
                    yield one.opcode, source, one.wanted[number]
        for at in self.results:
            if len(self.code[at].dims) > 1:
                yield "result", at, self.returned(at)

    def copies(self):
        found = set()
        for opcode, source, wanted in self.reads():
            written = self.code[source].written
            if opcode != "tuple" and written is not None and written != wanted:
                found.add((source, written, wanted, wanted))
        for node, passing in enumerate(self.program.passing):
            one = self.code[self.own[node]]
            if (
                passing is Passing.RESHAPES
                and one.dims
                and one.written is not None
                and one.wanted[0] is not None
            ):
                if not self.same(
                    self.own[node], self.program.to_output(node, one.wanted[0]), one.written
                ):
                    found.add((self.own[node], one.written, one.written, None))
        return found

    def chains(self):
        """Follow every read back over renaming operations.

        Moves that cancel vanish, unless a reshape lies between them.
        """
        found = set()
        for opcode, source, wanted in self.reads():
            if opcode in (*CHAIN, "tuple", "broadcast"):
                continue
            at = source
            unmoved = wanted
            moved = False
            while self.code[at].opcode in CHAIN and self.code[at].operands:
                one = self.code[at]
                if one.opcode in ("reshape", "bitcast"):
                    moved |= not self.same(at, one.written, unmoved)
                if unmoved is not None and one.opcode in ("transpose", "reshape", "bitcast"):
                    unmoved = self.program.to_operand(one.node, unmoved)
                at = one.operands[0]
                if len(self.code[at].dims) < 2:
                    break
                if unmoved is not None and len(unmoved) != len(self.code[at].dims):
                    unmoved = None
            producer = self.code[at]
            written = producer.written
            rank = len(producer.dims)
            if at != source and rank < 2:
                continue
            if written is None or producer.opcode in ("broadcast", "constant", "iota"):
                continue
            free = self.same(at, written, unmoved)
            if producer.opcode == "dot" and rank > 2 and unmoved is not None:
                last_two = set(unmoved[:2]) == {rank - 1, rank - 2}
                free |= last_two and unmoved[2:] == written[2:]
            if not free or moved:
                chain = (source, wanted, wanted, None)
                found.add(chain if unmoved is None else (at, written, unmoved, unmoved))
        return found
