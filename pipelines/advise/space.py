"""Configurations of a program: layouts of its operations, inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from xlarank.data.hlo.compiler import constrain as entry
from xlarank.data.hlo.compiler.constrain import AUTO, DEFAULT, Order
from xlarank.data.hlo.messages import Message, instructions
from xlarank.data.schema import LAYOUT_COLUMNS
from xlarank.pipelines.advise.diagnosis import Leaf, leaves_of, ties_of
from xlarank.pipelines.programs.candidates import Candidates, Codes, candidate_rows
from xlarank.pipelines.programs.sources import Program, configuration_key


@dataclass(frozen=True, eq=False)
class Space:
    """Search space of configurations, encoded as ``(configs, nodes + 2)``; code 0 leaves a layout unchanged.

    Attributes:
        candidates: layout rows of each configurable node, without the compiler's choice; the last two columns index
            ``sides``, for all inputs and for all outputs.
        ties: input -> output of the previous step that it is taken from; both should have the same layout.
        sides: modes of inputs and outputs: as written, chosen by the compiler, and with equal orders for ``ties``.
    """

    program: Program
    inputs: Sequence[Leaf]
    outputs: Sequence[Leaf]
    candidates: Candidates
    ties: Mapping[int, int]
    sides: tuple[tuple[list[str], list[str]], ...]

    @classmethod
    def of(cls, program: Program, rng: np.random.Generator, per_node: int) -> Space:
        """Draw candidate layouts of a program."""
        inputs, outputs = leaves_of(program.module, program.lowered.leaves)
        drawn = candidate_rows(program.graph, rng, per_node=per_node).rows
        names = [instruction.name for _, instruction in instructions(program.module)]
        nodes = []
        for node, rows in zip(program.graph.configurable.tolist(), drawn, strict=True):
            chosen = program.lowered.chosen.get(names[node], ())
            nodes.append(rows[[not chosen or tuple(row[: len(chosen)]) != chosen for row in rows.tolist()]])
        side = np.array([_row(()), _row((0,))], np.int8)
        now, free = (([mode] * len(inputs), [mode] * len(outputs)) for mode in (DEFAULT, AUTO))
        inputs_now, outputs_now = entry.entry_modes(program.module) or now
        sides = (inputs_now, outputs_now), free
        ties = ties_of(program.module, inputs, outputs)
        return cls(program, inputs, outputs, Candidates((*nodes, side, side)), ties, sides)

    @property
    def nodes(self) -> Candidates:
        """Candidates of the configurable nodes only."""
        return Candidates(self.candidates.rows[:-2])

    def entry(self, inputs: bool, outputs: bool) -> Codes:
        """Return the code ``(1, columns)`` that leaves layouts of inputs, outputs or both to the compiler."""
        code = np.zeros((1, self.candidates.nodes), np.int32)
        code[0, -2:] = inputs, outputs
        return code

    def toward(
        self, start: NDArray[np.int32], wanted: Sequence[Mapping[tuple[int, ...], Order]]
    ) -> tuple[Space, Codes]:
        """Return the space extended by the wanted orders, and ``start`` with each, ``(configs, columns)``."""
        sizes = [tuple(instruction.shape.dimensions) for _, instruction in instructions(self.program.module)]
        nodes = [sizes[node] for node in self.program.graph.configurable.tolist()]
        rows = [candidates.tolist() for candidates in self.candidates.rows]
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
        table = tuple(np.array(candidates, np.int8) for candidates in rows)
        return replace(self, candidates=Candidates(table)), np.array(codes, np.int32).reshape(-1, len(rows))

    def modes(self, code: NDArray[np.int32]) -> tuple[list[str], list[str]]:
        """Return the modes of inputs and of outputs in one configuration."""
        inputs, outputs = (list(self.sides[code[side]][side]) for side in (-2, -1))
        if (most := code[-2:].max()) > 1:
            for at, to in self.ties.items():
                inputs[at] = outputs[to] = self.sides[most][0][at]
        return inputs, outputs

    def tied(self, text: str) -> bool:
        """Return whether a loop can pass outputs of a compiled program to its next step without a copy."""
        inputs, outputs = entry.compiled_entry_layouts(text)
        return all(inputs[at] == outputs[to] for at, to in self.ties.items())

    def tie(self, code: NDArray[np.int32], text: str) -> tuple[Space, Codes]:
        """Return the extended space, and the code with tied layouts taken from inputs, then from outputs."""
        # set all orders: if one is left to the compiler, it does not keep those of other outputs
        inputs, outputs = ([entry.mode_of(order) if order else DEFAULT for order in part]
                           for part in entry.compiled_entry_layouts(text))  # fmt: skip
        sides, codes = list(self.sides), []
        for by_input in (True, False):
            modes = list(inputs), list(outputs)
            for at, to in self.ties.items():
                modes[0][at] = modes[1][to] = inputs[at] if by_input else outputs[to]
            if modes not in sides:
                sides.append(modes)
            codes.append(np.where(np.arange(len(code)) < len(code) - 2, code, sides.index(modes) * (code > 0)))
        rows = np.array([_row(()), *[_row((0,))] * (len(sides) - 1)], np.int8)
        candidates = Candidates((*self.nodes.rows, rows, rows))
        return replace(self, candidates=candidates, sides=tuple(sides)), np.array(codes, np.int32)

    def rows(self, code: NDArray[np.int32]) -> NDArray[np.int8]:
        """Return the rows ``(nodes, 18)`` of one configuration, as in ``node_config_feat``."""
        rows: NDArray[np.int8] = self.nodes.expand(code[None, :-2])[0]
        return rows

    def module(self, code: NDArray[np.int32], modes: tuple[Sequence[str], Sequence[str]] | None = None) -> Message:
        """Return the program with a configuration applied; ``modes`` override those of the configuration."""
        return entry.with_entry_modes(self.program.constrained(self.rows(code)), *(modes or self.modes(code)))

    def key(self, code: NDArray[np.int32]) -> str:
        """Return the layouts of a configuration as text, independent of the order of candidates."""
        modes = [";".join(part) for part in self.modes(code)] if code[-2:].any() else []
        return " | ".join([configuration_key(self.rows(code)), *modes])


def _row(order: Order) -> list[int]:
    return [*order, *[-1] * (len(LAYOUT_COLUMNS) - len(order))]
