"""What a search may set: outputs of configurable nodes, inputs and outputs of the program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.hlo.candidates import Candidates, Codes, candidate_rows
from xlarank.data.hlo.compiler.constrain import constrain, instructions, layouts_of
from xlarank.data.hlo.compiler.entry import AUTO, DEFAULT, Order, mode_of, with_entry_modes
from xlarank.data.hlo.messages import Message
from xlarank.data.schema import LAYOUT_COLUMNS, MAX_RANK
from xlarank.pipelines.programs.leaves import Leaf, leaves_of
from xlarank.pipelines.programs.sources import Program, configuration_key

#: Inputs and outputs with fewer elements lie as the compiler likes.
_LEAST: Final = 1024
#: Modes of all inputs, or of all outputs; code 0 is how they lie without advice.
_SIDES: Final = (DEFAULT, AUTO)


@dataclass(frozen=True, eq=False)
class Space:
    """Configurations as codes ``(configs, nodes + leaves + 2)``; code 0 leaves everything as it is.

    Attributes:
        program: whose layouts are set.
        inputs, outputs: its leaves.
        nodes: candidate rows of configurable nodes; none is what the compiler chooses anyway.
        orders: for each input, then each output, the orders it may be given beside the mode of its side.
        candidates: all of it as one table, as `xlarank.data.hlo.candidates` breeds them; the last two columns are
            the modes of all inputs and of all outputs.
    """

    program: Program
    inputs: Sequence[Leaf]
    outputs: Sequence[Leaf]
    nodes: Candidates
    orders: Sequence[Sequence[Order]]
    candidates: Candidates

    @classmethod
    def of(cls, program: Program, rng: np.random.Generator, per_node: int) -> Space:
        """Draw candidate layouts of a program."""
        inputs, outputs = leaves_of(program.module, program.leaves)
        nodes = Candidates(
            tuple(_unlike_the_compilers(program, candidate_rows(program.graph, rng, per_node=per_node)))
        )
        orders = [_orders(leaf, rng) for leaf in (*inputs, *outputs)]
        leaves = [np.array([_row(()), *map(_row, given)], np.int8) for given in orders]
        sides = [np.array([_row(()), _row((0,))], np.int8)] * 2
        return cls(program, inputs, outputs, nodes, orders, Candidates((*nodes.rows, *leaves, *sides)))

    def entry(self, inputs: bool, outputs: bool) -> Codes:
        """``(1, columns)`` the compiler chooses how inputs or outputs lie, nothing else is set."""
        code = np.zeros((1, self.candidates.nodes), np.int32)
        code[0, -2:] = inputs, outputs
        return code

    def toward(
        self, start: NDArray[np.int32], wanted: Sequence[Mapping[tuple[int, ...], Order]]
    ) -> tuple[Space, Codes]:
        """Return a space and configurations ``(configs, columns)``: ``start``, with all nodes of some dimensions in
        the order that each of ``wanted`` gives them; earlier codes mean the same in it.
        """
        sizes = [tuple(one.shape.dimensions) for _, one in instructions(self.program.module)]
        nodes = [sizes[node] for node in self.program.graph.configurable.tolist()]
        rows = [one.tolist() for one in self.candidates.rows]
        codes: list[NDArray[np.int32]] = []
        for orders in wanted:
            code = start.copy()
            for at, size in enumerate(nodes):
                if size in orders:
                    if (row := _row(orders[size])) not in rows[at]:
                        rows[at].append(row)
                    code[at] = rows[at].index(row)
            if not any((code == other).all() for other in (start, *codes)):
                codes.append(code)
        table = tuple(np.array(one, np.int8) for one in rows)
        grown = replace(self, nodes=Candidates(table[: len(nodes)]), candidates=Candidates(table))
        return grown, np.array(codes, np.int32).reshape(-1, len(rows))

    def modes(self, code: NDArray[np.int32]) -> tuple[list[str], list[str]]:
        """Modes of inputs and of outputs in one configuration."""
        split = self.nodes.nodes + len(self.inputs)
        sides = [_SIDES[side] for side in code[-2:]]
        columns = (code[self.nodes.nodes : split], code[split:-2])
        orders = (self.orders[: len(self.inputs)], self.orders[len(self.inputs) :])
        inputs, outputs = (
            [mode_of(given[at - 1]) if at else side for at, given in zip(part, choices, strict=True)]
            for side, part, choices in zip(sides, columns, orders, strict=True)
        )
        return inputs, outputs

    def rows(self, code: NDArray[np.int32]) -> NDArray[np.int8]:
        """``(nodes, 18)`` rows of one configuration, as in ``node_config_feat``."""
        rows: NDArray[np.int8] = self.nodes.expand(code[None, : self.nodes.nodes])[0]
        return rows

    def module(self, code: NDArray[np.int32], modes: tuple[Sequence[str], Sequence[str]] | None = None) -> Message:
        """The program with one configuration set; ``modes`` in place of its own."""
        rows = self.rows(code)
        layouts = layouts_of(self.program.module, self.program.graph.configurable, rows)
        return with_entry_modes(constrain(self.program.module, layouts), *(modes or self.modes(code)))

    def key(self, code: NDArray[np.int32]) -> str:
        """One configuration as a text of its layouts, whatever the numbering of candidates."""
        modes = [";".join(part) for part in self.modes(code)]
        if all(set(part) <= {DEFAULT} for part in self.modes(code)):
            modes = []
        return " | ".join([configuration_key(self.nodes, code[: self.nodes.nodes]), *modes])


def _unlike_the_compilers(program: Program, candidates: Candidates) -> list[NDArray[np.int8]]:
    """Candidate rows without those that the compiler chooses where nothing is set."""
    names = [one.name for _, one in instructions(program.module)]
    kept = []
    for node, rows in zip(program.graph.configurable.tolist(), candidates.rows, strict=True):
        own = program.chosen.get(names[node], ())
        kept.append(rows[[not own or tuple(row[: len(own)]) != own for row in rows.tolist()]])
    return kept


def _orders(leaf: Leaf, rng: np.random.Generator) -> list[Order]:
    """Row major, and each other dimension minor-most in its place."""
    rank = len(leaf.dimensions)
    if not 2 <= rank <= MAX_RANK or math.prod(leaf.dimensions) < _LEAST:
        return []
    plain = tuple(reversed(range(rank)))
    fronts = rng.permutation(plain).tolist()[:3]
    return list(dict.fromkeys([plain, *((front, *(one for one in plain if one != front)) for front in fronts)]))


def _row(order: Order) -> list[int]:
    return [*order, *[-1] * (len(LAYOUT_COLUMNS) - len(order))]
