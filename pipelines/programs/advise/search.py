"""Search for faster layouts: of the entry, around copies, then genetic and random proposals."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.hardware import GPUS
from xlarank.data.hlo.messages import Message, instructions
from xlarank.features.layout.hardware import copy_hardware
from xlarank.features.layout.relayout_blocks import relayout_ns
from xlarank.pipelines.programs.advise.diagnosis import Leaf, leaves_of, ties_of
from xlarank.pipelines.programs.candidates import (
    CandidateLayouts,
    Codes,
    breed,
    candidate_rows,
    random_configurations,
)
from xlarank.pipelines.programs.compiler import constrain as layouts
from xlarank.pipelines.programs.compiler.constrain import AUTO, DEFAULT, Order
from xlarank.pipelines.programs.compiler.cycles import read_operations
from xlarank.pipelines.programs.compiler.outcome import Journal, Outcome, Status
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.programs.compiler.xla import Program
from xlarank.pipelines.programs.sources import Evaluator, configuration_key, default_error
from xlarank.pipelines.support.progress import Progress, steps_of

#: Configurations compiled per step: fewer adapt sooner, more keep several processes busy.
BATCH: Final = 4
#: Proposals drawn for each one that is measured on a GPU.
_POOL: Final = 8
#: Number of fastest configurations from which the genetic search breeds.
_PARENTS: Final = 8
#: Time limit of a compilation: a multiple of the default's, and the minimum in seconds, which is
#: enough for a machine that becomes busy.
_LIMIT_FACTOR = 4.0
_MIN_LIMIT = 30.0
#: Maximum number of copy-avoiding configurations per round, and distance in operations from a copy.
_MAX_AVOIDING = 12
_STEPS = 4
#: Consecutive proposals of known or unpromising programs that end the search.
_MAX_IDLE: Final = 24
#: Maximum proposals as a multiple of the budget; screening takes 1/5 to 2/3 of compiling.
_MAX_PROPOSALS: Final = 3


@dataclass(frozen=True, eq=False)
class Space:
    """Search space, encoded as ``(configs, nodes + 2)``; code 0 leaves a layout unchanged.

    Attributes:
        nodes: candidate rows of each configurable node, without the layout that the compiler chose.
        ties: input -> previous step's output, which should have the same layout.
        entry_modes: modes of inputs and outputs: as written, free, then equal for ``ties``.
    """

    program: Program
    inputs: Sequence[Leaf]
    outputs: Sequence[Leaf]
    nodes: CandidateLayouts
    ties: Mapping[int, int]
    entry_modes: tuple[tuple[list[str], list[str]], ...]

    @classmethod
    def of(cls, program: Program, rng: np.random.Generator, per_node: int) -> Space:
        """Draw candidate layouts of a program."""
        inputs, outputs = leaves_of(program.module, program.leaves)
        drawn = candidate_rows(program.graph, rng, per_node=per_node).rows
        names = [instruction.name for _, instruction in instructions(program.module)]
        nodes = []
        for node, rows in zip(program.graph.configurable.tolist(), drawn, strict=True):
            if chosen := program.chosen.get(names[node], ()):
                rows = rows[(rows[:, : len(chosen)] != chosen).any(axis=1)]
            nodes.append(rows)
        default = ([DEFAULT] * len(inputs), [DEFAULT] * len(outputs))
        free = ([AUTO] * len(inputs), [AUTO] * len(outputs))
        input_modes, output_modes = layouts.entry_modes(program.module) or default
        ties = ties_of(program.module, inputs, outputs)
        modes = ((input_modes, output_modes), free)
        return cls(program, inputs, outputs, CandidateLayouts(nodes), ties, modes)

    @cached_property
    def candidates(self) -> CandidateLayouts:
        """Rows of ``nodes``, then those of two columns that index ``entry_modes``, one a side."""
        others = [layouts.row_of((0,))] * (len(self.entry_modes) - 1)
        modes = np.array([layouts.row_of(()), *others], np.int8)
        return CandidateLayouts((*self.nodes.rows, modes, modes))

    def entry(self, inputs: bool, outputs: bool) -> Codes:
        """Return the code ``(1, columns)`` by which the compiler lays out these sides."""
        code = np.zeros((1, len(self.candidates.rows)), np.int32)
        code[0, -2:] = inputs, outputs
        return code

    def toward(
        self, start: NDArray[np.int32], targets: Sequence[Mapping[tuple[int, ...], Order]]
    ) -> tuple[Space, Codes]:
        """Return the extended space, and ``start`` changed to each, ``(configs, columns)``."""
        sizes = [tuple(node.shape.dimensions) for _, node in instructions(self.program.module)]
        rows = [candidates.tolist() for candidates in self.nodes.rows]
        codes = {start.tobytes(): start}
        for orders in targets:
            code = start.copy()
            for at, node in enumerate(self.program.graph.configurable.tolist()):
                if (size := sizes[node]) not in orders:
                    continue
                row = layouts.row_of(orders[size])
                if row not in rows[at]:
                    rows[at].append(row)
                code[at] = rows[at].index(row)
            codes.setdefault(code.tobytes(), code)
        nodes = CandidateLayouts([np.array(candidates, np.int8) for candidates in rows])
        return replace(self, nodes=nodes), np.array([*codes.values()])[1:]

    def modes(self, code: NDArray[np.int32]) -> tuple[list[str], list[str]]:
        """Return the modes of inputs and of outputs in one configuration."""
        inputs, outputs = (list(self.entry_modes[code[side]][side]) for side in (-2, -1))
        if (choice := code[-2:].max()) > 1:
            for input_at, output_at in self.ties.items():
                inputs[input_at] = outputs[output_at] = self.entry_modes[choice][0][input_at]
        return inputs, outputs

    def tied(self, text: str) -> bool:
        """Return whether a loop can pass outputs of a compiled program on without a copy."""
        inputs, outputs = layouts.compiled_entry_layouts(text)
        return all(inputs[at] == outputs[output_at] for at, output_at in self.ties.items())

    def tie(self, code: NDArray[np.int32], text: str) -> tuple[Space, Codes]:
        """Return the extended space, and ``code`` with tied inputs' layouts, and outputs'."""
        # all orders are set: if one is left to the compiler, it changes those of other outputs
        sides = layouts.compiled_entry_layouts(text)
        inputs, outputs = (list(map(layouts.mode_of, orders)) for orders in sides)
        all_modes = list(self.entry_modes)
        codes = np.array([code, code])
        for tied, by_input in zip(codes, (True, False), strict=True):
            modes = list(inputs), list(outputs)
            for input_at, output_at in self.ties.items():
                mode = inputs[input_at] if by_input else outputs[output_at]
                modes[0][input_at] = mode
                modes[1][output_at] = mode
            if modes not in all_modes:
                all_modes.append(modes)
            tied[-2:] = all_modes.index(modes) * (code[-2:] > 0)
        return replace(self, entry_modes=tuple(all_modes)), codes

    def rows(self, code: NDArray[np.int32]) -> NDArray[np.int8]:
        """Return the rows ``(nodes, 18)`` of one configuration, as in ``node_config_feat``."""
        rows: NDArray[np.int8] = self.nodes.expand(code[None, :-2])[0]
        return rows

    def module(
        self, code: NDArray[np.int32], modes: tuple[Sequence[str], Sequence[str]] | None = None
    ) -> Message:
        """Return the program with a configuration applied; ``modes`` override its own."""
        inputs, outputs = modes or self.modes(code)
        return layouts.with_entry_modes(self.program.constrained(self.rows(code)), inputs, outputs)

    def key(self, code: NDArray[np.int32]) -> str:
        """Return the layouts of a configuration as text, independent of the order of candidates."""
        modes = [";".join(part) for part in self.modes(code)] if code[-2:].any() else []
        return " | ".join([configuration_key(self.rows(code)), *modes])


def around_copies(text: str) -> list[dict[tuple[int, ...], Order]]:
    """Return layouts, by dimensions, that might avoid copies, the costliest first.

    Producers get the output layout of a copy, or consumers its input layout. The first results
    combine all copies; then come, for each copy, its value alone and all values of its rank within
    `_STEPS`.
    """
    orders = []
    combined: tuple[dict[tuple[int, ...], Order], ...] = ({}, {})
    copies = [op for op in read_operations(text) if op.relayout and op.total]
    for copy in sorted(copies, key=lambda op: -op.total):
        directions = (
            (copy.layout, attrgetter("inputs"), combined[0]),
            (copy.before, attrgetter("users"), combined[1]),
        )
        for order, neighbours, union in directions:
            if len(order) != len(copy.dimensions):
                continue
            near = {copy.dimensions: order}
            reached = [copy]
            for _ in range(_STEPS):
                reached = list(chain.from_iterable(map(neighbours, reached)))
                same_rank = (op for op in reached if len(op.dimensions) == len(order))
                near |= dict.fromkeys((op.dimensions for op in same_rank), order)
            orders += [{copy.dimensions: order}, near]
            union |= near | union
    return [*filter(None, combined), *orders]


class LayoutSearch:
    """Search that compiles configurations until its budget, time or proposals are exhausted.

    Attributes:
        codes, outcomes: evaluated configurations, the compiler's default first.
        tied: whether a loop passes outputs on without a copy, as the best must.
    """

    def __init__(
        self, compiler: Compiler, space: Space, journal: Journal, rng: np.random.Generator
    ) -> None:
        self.compiler = compiler
        self.space = space
        self.journal = journal
        self.rng = rng
        self.codes: Codes = np.zeros((0, len(space.candidates.rows)), np.int32)
        self.outcomes: list[Outcome] = []
        self.tied: list[bool] = []
        self.stopped = ""
        self._budget = 0
        self._end = 0.0
        self._evaluator = Evaluator(compiler, journal, timed=not compiler.target.estimated)
        # on a CPU, the cheapest of a pool were no better than any: docs/tried.md
        is_gpu = compiler.target.source.startswith(GPUS)
        self._hardware = copy_hardware(compiler.target.source) if is_gpu else None
        stored = [outcome for outcome in journal.outcomes.values() if outcome.text]
        self.texts = {outcome.fingerprint: outcome.text for outcome in stored}

    @property
    def best(self) -> int:
        """Index of the fastest configuration; among equals, the one that sets fewest layouts."""
        return int(np.lexsort([(self.codes > 0).sum(axis=1), self._costs()])[0])

    @property
    def statuses(self) -> dict[str, int]:
        """Number of configurations by status: ``ok`` distinct programs, ``known`` repeated ones."""
        programs = {outcome.fingerprint for outcome in self.outcomes if outcome.status is Status.OK}
        counts = Counter(str(outcome.status) for outcome in self.outcomes)
        repeated = counts[Status.OK] - len(programs)
        return dict(counts) | {"ok": len(programs)} | ({"known": repeated} if repeated else {})

    @property
    def spent(self) -> int:
        """Number of compilations; known programs and those screened out cost nothing."""
        statuses = self.statuses
        return sum(statuses.values()) - statuses.get("known", 0) - statuses.get("screened", 0)

    def text(self, at: int) -> str:
        """Return the compiled program of a configuration that has an estimate."""
        return self.texts[self.outcomes[at].fingerprint]

    def run(self, budget: int, minutes: float, progress: Progress | None = None) -> None:
        """Compile up to ``budget`` configurations; raises `CompilerError` if the default fails."""
        self._budget = budget
        self._end = time.monotonic() + 60 * minutes
        estimates = {key: self.journal.estimates[key] for key in self.texts}
        self.compiler.add_estimates(estimates, self.texts.values())
        title = f"compiling {self.space.program.name} for {self.compiler.target.name}"
        with steps_of(progress, title, budget) as self._step:
            self._compile(self.space.entry(False, False), screen=False)
            self._check_default()
            self.try_entry_layouts()
            self.avoid_copies()
            self.propose()
            self.stopped = self.stopped or f"the budget of {budget} compilations is spent"

    def _check_default(self) -> None:
        default = self.outcomes[0]
        if default.status is not Status.OK or not default.cycles:
            module = self.space.program.module
            raise default_error(module, default, self.compiler.target.name)
        self._step(f"{default.seconds:.1f} s a compilation")

    @property
    def _can_continue(self) -> bool:
        return self.spent < self._budget and time.monotonic() < self._end

    def try_entry_layouts(self) -> None:
        """Let the compiler choose the layouts of inputs, outputs or both."""
        for sides in ((True, True), (True, False), (False, True)):
            if self._can_continue:
                self._compile(self.space.entry(*sides), screen=False)

    def avoid_copies(self) -> None:
        """Compile layouts `around_copies` of the best program, again while it improves."""
        best = -1
        while best != self.best and self._can_continue:
            best = self.best
            self.space, codes = self.space.toward(
                self.codes[best], around_copies(self.text(best))[:_MAX_AVOIDING]
            )
            for at in range(0, len(codes), BATCH):
                if (budget_left := self._budget - self.spent) > 0:
                    self._compile(codes[at : at + min(BATCH, budget_left)])

    def propose(self) -> None:
        """Compile proposals until the budget or the time is spent, or nothing promising is left."""
        idle = 0
        while self.spent < self._budget:
            codes = self.proposals(min(BATCH, self._budget - self.spent))
            if not len(codes) or idle >= _MAX_IDLE:
                reason = "other proposals become known or slower programs"
                self.stopped = f"nothing is left to try: {reason}"
            elif len(self.codes) >= _MAX_PROPOSALS * self._budget:
                times = f"{_MAX_PROPOSALS} times as many proposals as the budget"
                self.stopped = f"{times} were looked at"
            elif time.monotonic() >= self._end:
                self.stopped = "the time is over"
            if self.stopped:
                return
            before = self.spent
            self._compile(codes)
            idle = 0 if self.spent > before else idle + len(codes)

    def proposals(self, count: int) -> Codes:
        """Return new configurations: bred from the fastest, and random ones with the best entry
        modes. On a GPU, they are those of a larger pool with the least time of relayouts.
        """
        candidates = self.space.candidates
        parents = self.codes[np.argsort(self._costs(screened=True), kind="stable")[:_PARENTS]]
        pool = count if self._hardware is None else _POOL * count
        bred = breed(candidates, parents, (pool + 1) // 2, self.rng, known=self.codes)
        drawn = random_configurations(candidates, pool - len(bred) + 1, self.rng)[1:]
        drawn[:, -2:] = self.codes[self.best, -2:]
        distinct = {code.tobytes(): code for code in (*bred, *drawn)}
        for code in self.codes:
            distinct.pop(code.tobytes(), None)
        proposed = np.array([*distinct.values()], np.int32).reshape(-1, bred.shape[1])
        return proposed if self._hardware is None else self._cheapest(proposed, count)

    def _cheapest(self, codes: Codes, count: int) -> Codes:
        """Return those with the least time of relayouts; equal times, often equal code, last."""
        assert self._hardware is not None
        everything = np.concatenate([self.codes, codes])[:, :-2]
        graph = self.space.nodes.graph(self.space.program.graph, everything)
        times = relayout_ns(graph, self._hardware)
        _, first = np.unique(times, return_index=True)
        repeated = np.ones(len(times), bool)
        repeated[first] = False
        order = np.lexsort([times, repeated])
        chosen = order[order >= len(self.codes)][:count] - len(self.codes)
        return codes[chosen]

    def _compile(self, codes: Codes, *, screen: bool = True) -> None:
        # without screening, retry what was screened out, crashed or took too long
        settled = tuple(Status) if screen else (Status.OK, Status.FAILED)
        best = min(self._costs(), default=np.inf)
        # a much slower compilation generates much more code, hence a slower program
        limit = max(_MIN_LIMIT, _LIMIT_FACTOR * self.outcomes[0].seconds) if self.outcomes else None
        keys = [self.space.key(code) for code in codes]
        outcomes = self._evaluator.outcomes(
            keys,
            lambda at: self.space.module(codes[at]),
            settled=settled,
            limit=limit,
            keep=True,
            screen=float(best) if screen and self.compiler.target.estimated else None,
        )
        self.texts |= {outcome.fingerprint: outcome.text for outcome in outcomes if outcome.text}
        before = self.spent
        self.codes = np.concatenate([self.codes, codes])
        new = range(len(self.outcomes), len(self.codes))
        self.outcomes += outcomes
        for at in new:
            is_compiled = self.outcomes[at].status is Status.OK
            self.tied.append(at == 0 or not is_compiled or self.space.tied(self.text(at)))
        if len(self.codes) > 1:
            for _ in range(self.spent - before):
                gain = self.outcomes[0].cycles / min(self._costs())
                self._step(f"best so far {gain:.3f} times as fast")
        for at in new:
            is_promising = self.outcomes[at].cycles < best
            if not self.tied[at] and is_promising and self.spent < self._budget:
                self.space, tied = self.space.tie(self.codes[at], self.text(at))
                fresh = [not (self.codes == code).all(axis=1).any() for code in tied]
                self._compile(tied[fresh], screen=screen)

    def _costs(self, *, screened: bool = False) -> NDArray[np.float64]:
        """Return cycles ``(configs,)``, with ``screened`` also predicted ones; else inf."""
        counted = (Status.OK, Status.SCREENED) if screened else (Status.OK,)
        costs = [
            outcome.cycles if outcome.status in counted else np.inf for outcome in self.outcomes
        ]
        return np.where(self.tied, np.array(costs, np.float64), np.inf)
