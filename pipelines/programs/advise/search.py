"""Search for faster layouts: of the entry, chosen by the compiler, around copies, of operations."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Final

import numpy as np

from xlarank.data.hlo.messages import Message, instructions
from xlarank.pipelines.programs.advise.diagnosis import leaves_of, ties_of
from xlarank.pipelines.programs.candidates import tied_candidates
from xlarank.pipelines.programs.compiler import constrain as layouts
from xlarank.pipelines.programs.compiler.constrain import AUTO, DEFAULT, Order
from xlarank.pipelines.programs.compiler.cycles import read_operations
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.programs.compiler.xla import Outcome, Program, Status
from xlarank.pipelines.programs.sources import default_error
from xlarank.pipelines.programs.timing import time_programs
from xlarank.pipelines.support.progress import steps_of

#: Maximum number of copy-avoiding configurations per round, and distance in operations from a copy.
_MAX_AVOIDING: Final = 12
_STEPS: Final = 4
#: Time of what does not compile or run.
NEVER: Final = 2**62


@dataclass(frozen=True)
class Layouts:
    """Output orders of operations, by node, and modes of inputs and outputs
    (`xlarank.pipelines.programs.compiler.constrain`).
    """

    orders: tuple[tuple[int, Order], ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def apply(self, module: Message) -> Message:
        """Return a copy of a module with these layouts."""
        constrained = layouts.constrain(module, dict(self.orders))
        return layouts.with_entry_modes(constrained, self.inputs, self.outputs)

    def with_orders(self, orders: Mapping[int, Order]) -> Layouts:
        """Return these layouts with further orders of operations."""
        return replace(self, orders=tuple(sorted({**dict(self.orders), **orders}.items())))


@dataclass(frozen=True)
class Trial:
    """Compiled layouts; ``cycles`` are nanoseconds on targets that are measured.

    Attributes:
        tied: whether a loop passes outputs on without a copy, as advice must.
    """

    layouts: Layouts
    outcome: Outcome
    cycles: int
    tied: bool


class LayoutSearch:
    """Search that compiles layouts until the budget or the time is spent, or none are left.

    Attributes:
        ties: input -> previous step's output, which should have the same layout.
        trials: the compiler's default, then all others that were compiled.
        stopped: reason for the end.
    """

    def __init__(self, compiler: Compiler, program: Program) -> None:
        self.compiler = compiler
        self.program = program
        self.inputs, self.outputs = leaves_of(program.module, program.leaves)
        self.ties = ties_of(program.module, self.inputs, self.outputs)
        self.trials: list[Trial] = []
        self.stopped = ""
        self._times: dict[str, int] = {}
        self._budget = 0
        self._end = 0.0

    @property
    def written(self) -> Layouts:
        """The program's own layouts."""
        default = [DEFAULT] * len(self.inputs), [DEFAULT] * len(self.outputs)
        inputs, outputs = layouts.entry_modes(self.program.module) or default
        return Layouts((), tuple(inputs), tuple(outputs))

    @property
    def best(self) -> Trial:
        """The fastest tied trial; among equals, the one that sets fewest layouts."""
        tied = [trial for trial in self.trials if trial.tied]
        return min(tied, key=lambda trial: (trial.cycles, len(trial.layouts.orders)))

    @property
    def statuses(self) -> dict[str, int]:
        """Number of trials by status: ``ok`` distinct programs, ``known`` repeated ones."""
        outcomes = [trial.outcome for trial in self.trials]
        return dict(Counter("known" if one.shared else str(one.status) for one in outcomes))

    @property
    def spent(self) -> int:
        """Number of compilations; known programs cost nothing."""
        return sum(not trial.outcome.shared for trial in self.trials)

    def run(self, budget: int, minutes: float) -> None:
        """Compile up to ``budget`` programs; raises `CompilerError` if the default fails."""
        self._budget = budget
        self._end = time.monotonic() + 60 * minutes
        title = f"compiling {self.program.name} for {self.compiler.target.name}"
        with steps_of(title, budget) as self._step:
            self._compile([self.written])
            default = self.trials[0]
            if default.outcome.status is not Status.OK or not default.cycles:
                name = self.compiler.target.name
                raise default_error(self.program.module, default.outcome, name)
            self.try_entry_layouts()
            self.avoid_copies()
            self.try_operations()
        if self.spent >= budget:
            self.stopped = f"the budget of {budget} compilations is spent"
        elif time.monotonic() >= self._end:
            self.stopped = "the time is over"
        else:
            self.stopped = "nothing is left to try"

    @property
    def _can_continue(self) -> bool:
        return self.spent < self._budget and time.monotonic() < self._end

    def try_entry_layouts(self) -> None:
        """Let the compiler choose the layouts of inputs, outputs or both."""
        written = self.written
        inputs = (AUTO,) * len(self.inputs)
        outputs = (AUTO,) * len(self.outputs)
        self._compile([replace(written, inputs=inputs, outputs=outputs)])
        self._compile([replace(written, inputs=inputs)])
        self._compile([replace(written, outputs=outputs)])

    def avoid_copies(self) -> None:
        """Compile layouts `around_copies` of the best program, again while it improves."""
        before = None
        while before is not (best := self.best) and self._can_continue:
            before = best
            targets = around_copies(best.outcome.text)[:_MAX_AVOIDING]
            changes = [self._orders(orders) for orders in targets]
            # then each operation alone: others of its dimensions may be better off as they are
            single = [{node: order} for change in changes for node, order in change.items()]
            self._compile([best.layouts.with_orders(orders) for orders in (*changes, *single)])

    def try_operations(self) -> None:
        """Compile the other orders of each group of tied operations, and keep the faster ones."""
        candidates = tied_candidates(self.program.graph)
        changes = []
        for group in candidates.free.tolist():
            nodes = self.program.graph.configurable[candidates.group == group]
            for row in candidates.rows[group][1:]:
                rows = np.tile(row, (len(nodes), 1))
                changes.append(layouts.layouts_of(self.program.module, nodes, rows))
        before = None
        while before is not (best := self.best) and self._can_continue:
            before = best
            for orders in changes:
                self._compile([self.best.layouts.with_orders(orders)])

    def _orders(self, orders: Mapping[tuple[int, ...], Order]) -> dict[int, Order]:
        """Return an order for each configurable node of these dimensions."""
        nodes = [node for _, node in instructions(self.program.module)]
        configurable = self.program.graph.configurable.tolist()
        sizes = {node: tuple(nodes[node].shape.dimensions) for node in configurable}
        return {node: orders[size] for node, size in sizes.items() if size in orders}

    def _compile(self, proposed: Sequence[Layouts]) -> None:
        """Compile layouts that were not, within the budget, and versions of them for a loop."""
        waiting = list(dict.fromkeys(proposed))
        while waiting and (self._can_continue or not self.trials):
            size = min(max(1, self._budget - self.spent), self.compiler.jobs)
            known = {trial.layouts for trial in self.trials}
            batch = [tried for tried in waiting if tried not in known][:size]
            waiting = [tried for tried in waiting if tried not in known and tried not in batch]
            for trial in self._compile_batch(batch):
                if not trial.tied and trial.cycles < self.best.cycles:
                    waiting += self._tie(trial)

    def _compile_batch(self, batch: Sequence[Layouts]) -> list[Trial]:
        """Compile layouts at a time and add them to the trials."""
        modules = [tried.apply(self.program.module) for tried in batch]
        outcomes = dict(self.compiler.compile(modules, keep=True))
        compiled = [at for at in outcomes if outcomes[at].status is Status.OK]
        estimated = self.compiler.target.estimated
        if not estimated:
            self._time({outcomes[at].fingerprint: modules[at] for at in compiled})
        trials = []
        for at, tried in enumerate(batch):
            outcome = outcomes[at]
            cycles = NEVER
            if at in compiled:
                measured = self._times.get(outcome.fingerprint, NEVER)
                cycles = outcome.cycles if estimated else measured
            tied = not self.trials or not outcome.text or self.is_tied(outcome.text)
            trials.append(Trial(tried, outcome, cycles, tied))
            self.trials.append(trials[-1])
            if not outcome.shared:
                gain = self.trials[0].cycles / self.best.cycles
                self._step(f"best so far {gain:.3f} times as fast")
        return trials

    def _time(self, programs: dict[str, Message]) -> None:
        """Measure programs beside the default, the first one that was compiled."""
        new = {name: module for name, module in programs.items() if name not in self._times}
        if not new:
            return
        default = self.trials[0].outcome.fingerprint if self.trials else next(iter(new))
        plain = self.written.apply(self.program.module)
        timings = time_programs(self.compiler, plain, {default: plain} | new, minutes=1)
        base = self._times.setdefault(default, timings.nanoseconds()[default])
        for name in new.keys() & set(timings.names):
            self._times[name] = round(base / timings.speedup(default, name)[0])

    def is_tied(self, text: str) -> bool:
        """Return whether a loop can pass outputs of a compiled program on without a copy."""
        inputs, outputs = layouts.compiled_entry_layouts(text)
        return all(inputs[at] == outputs[output_at] for at, output_at in self.ties.items())

    def _tie(self, trial: Trial) -> list[Layouts]:
        """Return layouts in which tied inputs and outputs both have the compiled layout of the
        input, and of the output.

        All orders are set: if one is left to the compiler, it changes the orders of other outputs.
        """
        sides = layouts.compiled_entry_layouts(trial.outcome.text)
        tied = []
        for source in (0, 1):
            modes = [list(map(layouts.mode_of, orders)) for orders in sides]
            for ends in self.ties.items():
                modes[0][ends[0]] = modes[1][ends[1]] = modes[source][ends[source]]
            tied.append(replace(trial.layouts, inputs=tuple(modes[0]), outputs=tuple(modes[1])))
        return tied

    def explicit_best(self) -> Trial:
        """Return the best trial with explicit entry layouts, or the default if it is no faster."""
        default = self.trials[0]
        if self.best is default:
            return default
        before = layouts.compiled_entry_layouts(default.outcome.text)
        after = layouts.compiled_entry_layouts(self.best.outcome.text)
        written = (self.written.inputs, self.written.outputs)
        modes = []
        for side in zip(written, before, after, strict=True):
            arrays = zip(*side, strict=True)
            modes.append(
                tuple(mode if old == new else layouts.mode_of(new) for mode, old, new in arrays)
            )
        explicit = replace(self.best.layouts, inputs=modes[0], outputs=modes[1])
        module = explicit.apply(self.program.module)
        ((_, outcome),) = self.compiler.compile([module], keep=True)
        # a measured target compares the module with the default later
        cycles = outcome.cycles if self.compiler.target.estimated else self.best.cycles
        if outcome.status is not Status.OK or cycles >= default.cycles:
            return default
        return Trial(explicit, outcome, cycles, tied=True)


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
