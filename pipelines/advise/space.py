"""What a search may set: outputs of configurable nodes, inputs and outputs of the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.hlo.candidates import Candidates, Codes, candidate_rows
from xlarank.data.hlo.compiler.constrain import AUTO, DEFAULT, Order, with_entry_modes
from xlarank.data.hlo.messages import Message, instructions
from xlarank.data.schema import LAYOUT_COLUMNS
from xlarank.pipelines.programs.leaves import Leaf, leaves_of
from xlarank.pipelines.programs.sources import Program, configuration_key, constrained

#: Modes of all inputs, or of all outputs; code 0 is how they lie without advice.
_SIDES: Final = (DEFAULT, AUTO)


@dataclass(frozen=True, eq=False)
class Space:
    """Configurations as codes ``(configs, nodes + 2)``; code 0 leaves everything as it is.

    Attributes:
        candidates: rows of configurable nodes, none of which is what the compiler chooses anyway; the last two
            columns are the modes of all inputs and of all outputs.
    """

    program: Program
    inputs: Sequence[Leaf]
    outputs: Sequence[Leaf]
    candidates: Candidates

    @classmethod
    def of(cls, program: Program, rng: np.random.Generator, per_node: int) -> Space:
        """Draw candidate layouts of a program."""
        inputs, outputs = leaves_of(program.module, program.leaves)
        nodes = _unlike_the_compilers(program, candidate_rows(program.graph, rng, per_node=per_node))
        side = np.array([_row(()), _row((0,))], np.int8)
        return cls(program, inputs, outputs, Candidates((*nodes, side, side)))

    @property
    def nodes(self) -> Candidates:
        """Rows of the configurable nodes alone."""
        return Candidates(self.candidates.rows[:-2])

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
        return replace(self, candidates=Candidates(table)), np.array(codes, np.int32).reshape(-1, len(rows))

    def modes(self, code: NDArray[np.int32]) -> tuple[list[str], list[str]]:
        """Modes of inputs and of outputs in one configuration."""
        inputs, outputs = (_SIDES[side] for side in code[-2:])
        return [inputs] * len(self.inputs), [outputs] * len(self.outputs)

    def rows(self, code: NDArray[np.int32]) -> NDArray[np.int8]:
        """``(nodes, 18)`` rows of one configuration, as in ``node_config_feat``."""
        rows: NDArray[np.int8] = self.nodes.expand(code[None, :-2])[0]
        return rows

    def module(self, code: NDArray[np.int32], modes: tuple[Sequence[str], Sequence[str]] | None = None) -> Message:
        """The program with one configuration set; ``modes`` in place of its own."""
        return with_entry_modes(constrained(self.program, self.rows(code)), *(modes or self.modes(code)))

    def key(self, code: NDArray[np.int32]) -> str:
        """One configuration as a text of its layouts, whatever the numbering of candidates."""
        modes = [";".join(part) for part in self.modes(code)] if code[-2:].any() else []
        return " | ".join([configuration_key(self.nodes, code[:-2]), *modes])


def _unlike_the_compilers(program: Program, candidates: Candidates) -> list[NDArray[np.int8]]:
    """Candidate rows without those that the compiler chooses where nothing is set."""
    names = [one.name for _, one in instructions(program.module)]
    kept = []
    for node, rows in zip(program.graph.configurable.tolist(), candidates.rows, strict=True):
        own = program.chosen.get(names[node], ())
        kept.append(rows[[not own or tuple(row[: len(own)]) != own for row in rows.tolist()]])
    return kept


def _row(order: Order) -> list[int]:
    return [*order, *[-1] * (len(LAYOUT_COLUMNS) - len(order))]
