"""Search for faster layouts: of the entry, chosen by the compiler, around copies, of operations."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from xlarank.data.hlo.messages import Message, instructions
from xlarank.pipelines.programs.candidates import tied_candidates
from xlarank.pipelines.programs.compiler.constrain import (
    AUTO,
    Layouts,
    Order,
    compiled_entry_layouts,
    layouts_of,
    written_layouts,
)
from xlarank.pipelines.programs.compiler.cycles import read_operations
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.programs.compiler.xla import Outcome, Program
from xlarank.pipelines.programs.leaves import leaves_of, ties_of
from xlarank.pipelines.programs.sources import default_error
from xlarank.pipelines.programs.timing import time_programs
from xlarank.pipelines.support.progress import steps_of

#: Maximum number of copy-avoiding configurations per round, and distance in operations from a copy.
_MAX_AVOIDING: Final = 12
_STEPS: Final = 4
#: Cycles of what does not compile or run.
NEVER: Final = 2**62
#: Layouts by dimensions of an output.
_OrderByDimensions = dict[tuple[int, ...], Order]


@dataclass(frozen=True)
class Trial:
    """Compiled layouts.

    Attributes:
        cycles: estimated, or nanoseconds on targets that are measured; `NEVER` without either.
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
        written: the program's own layouts.
        trials: the compiler's default, then all others that were compiled.
        stopped: reason for the end.
    """

    def __init__(self, compiler: Compiler, program: Program, budget: int, minutes: float) -> None:
        self.compiler = compiler
        self.program = program
        self.inputs, self.outputs = leaves_of(program.module, program.leaves)
        self.ties = ties_of(program.module, self.inputs, self.outputs)
        self.written = written_layouts(program.module)
        self.trials: list[Trial] = []
        self.stopped = ""
        self._times: dict[str, int] = {}
        self._budget = budget
        self._end = time.monotonic() + 60 * minutes

    @property
    def best(self) -> Trial:
        """The fastest tied trial; among equals, the one that sets fewest layouts."""
        tied = [trial for trial in self.trials if trial.tied]
        return min(tied, key=lambda trial: (trial.cycles, len(trial.layouts.orders)))

    @property
    def spent(self) -> int:
        """Number of compilations; known programs cost nothing."""
        return sum(not trial.outcome.shared for trial in self.trials)

    def run(self) -> None:
        """Compile programs within the budget; raises `CompilerError` if the default fails."""
        target = self.compiler.target.name
        with steps_of(f"compiling {self.program.name} for {target}", self._budget) as self._step:
            self._compile_batch([self.written])
            default = self.trials[0]
            if default.cycles == NEVER:
                raise default_error(self.program.module, default.outcome, target)
            self.try_entry_layouts()
            self.avoid_copies()
            self.try_operations()
        self.stopped = "nothing is left to try" if self._can_continue else "the time is over"
        if self.spent >= self._budget:
            self.stopped = f"the budget of {self._budget} compilations is spent"

    @property
    def _can_continue(self) -> bool:
        return self.spent < self._budget and time.monotonic() < self._end

    def _improvements(self) -> Iterator[Trial]:
        """Yield the best trial, again each time that it has improved."""
        before = None
        while before is not (best := self.best) and self._can_continue:
            before = best
            yield best

    def try_entry_layouts(self) -> None:
        """Let the compiler choose the layouts of inputs and outputs, of either, or of both."""
        inputs, outputs = self.written.entry
        free_inputs = (AUTO,) * len(inputs)
        free_outputs = (AUTO,) * len(outputs)
        for entry in ((free_inputs, free_outputs), (free_inputs, outputs), (inputs, free_outputs)):
            self._compile([replace(self.written, entry=entry)])

    def avoid_copies(self) -> None:
        """Compile layouts `around_copies` of the best program, again while it improves."""
        nodes = [node for _, node in instructions(self.program.module)]
        configurable = self.program.graph.configurable.tolist()
        sizes = {node: tuple(nodes[node].shape.dimensions) for node in configurable}
        for best in self._improvements():
            changes = []
            for orders in around_copies(best.outcome.text)[:_MAX_AVOIDING]:
                changes.append({at: orders[size] for at, size in sizes.items() if size in orders})
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
                changes.append(layouts_of(self.program.module, nodes, rows))
        for _ in self._improvements():
            for orders in changes:
                self._compile([self.best.layouts.with_orders(orders)])

    def _compile(self, proposed: Sequence[Layouts]) -> None:
        """Compile layouts that were not, within the budget, and versions of them for a loop."""
        waiting = list(dict.fromkeys(proposed))
        while waiting and self._can_continue:
            known = [trial.layouts for trial in self.trials]
            waiting = [tried for tried in waiting if tried not in known]
            size = min(self._budget - self.spent, self.compiler.jobs)
            self._compile_batch(waiting[:size])
            waiting = waiting[size:]
            for trial in self.trials[len(known) :]:
                if not trial.tied and trial.cycles < self.best.cycles:
                    waiting += self._tie(trial)

    def _compile_batch(self, batch: Sequence[Layouts]) -> None:
        """Compile layouts at a time and add them to the trials."""
        modules = [tried.apply(self.program.module) for tried in batch]
        outcomes = dict(self.compiler.compile(modules, keep=True))
        estimated = self.compiler.target.estimated
        if not estimated:
            compiled = [at for at in outcomes if outcomes[at].ok]
            self._time({outcomes[at].fingerprint: modules[at] for at in compiled})
        for at, tried in enumerate(batch):
            outcome = outcomes[at]
            cycles = outcome.cycles if estimated else self._times.get(outcome.fingerprint, 0)
            tied = not self.trials or not outcome.ok or self.is_tied(outcome.text)
            self.trials.append(Trial(tried, outcome, cycles or NEVER, tied))
            if not outcome.shared:
                gain = self.trials[0].cycles / self.best.cycles
                self._step(f"best so far {gain:.3f} times as fast")

    def _time(self, programs: Mapping[str, Message]) -> None:
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
        inputs, outputs = compiled_entry_layouts(text)
        return all(inputs[at] == outputs[output_at] for at, output_at in self.ties.items())

    def _tie(self, trial: Trial) -> Iterator[Layouts]:
        """Yield layouts whose ties have the compiled layout of the input, then of the output.

        All orders are set: if one is left to the compiler, it changes the orders of other outputs.
        """
        for source in (0, 1):
            entry = compiled_entry_layouts(trial.outcome.text)
            for ends in self.ties.items():
                entry[0][ends[0]] = entry[1][ends[1]] = entry[source][ends[source]]
            yield trial.layouts.with_entry(*entry)

    def explicit_best(self) -> Trial:
        """Return the best trial with explicit entry layouts, or the default if it is no faster."""
        default = self.trials[0]
        best = self.best
        if best is default:
            return default
        explicit = best.layouts.with_entry(*compiled_entry_layouts(best.outcome.text))
        ((_, outcome),) = self.compiler.compile([explicit.apply(self.program.module)], keep=True)
        # a measured target compares the module with the default later
        cycles = outcome.cycles if self.compiler.target.estimated else best.cycles
        if not outcome.ok or cycles >= default.cycles:
            return default
        return Trial(explicit, outcome, cycles, tied=True)


def around_copies(text: str) -> list[_OrderByDimensions]:
    """Return layouts that might avoid copies, the costliest first.

    Producers get the output layout of a copy, or consumers its input layout. The first results
    combine all copies; then come, for each copy, its value alone and all values of its rank within
    `_STEPS`.
    """
    before_copies: _OrderByDimensions = {}
    after_copies: _OrderByDimensions = {}
    each = []
    copies = [op for op in read_operations(text) if op.is_copy and op.total]
    for copy in sorted(copies, key=lambda op: -op.total):
        producers = (copy.layout, "inputs", before_copies)
        consumers = (copy.before, "users", after_copies)
        for order, neighbours, combined in (producers, consumers):
            if len(order) != len(copy.dimensions):
                continue
            near = {copy.dimensions: order}
            reached = [copy]
            for _ in range(_STEPS):
                reached = [op for one in reached for op in getattr(one, neighbours)]
                same_rank = [op for op in reached if len(op.dimensions) == len(order)]
                near |= dict.fromkeys((op.dimensions for op in same_rank), order)
            each += [{copy.dimensions: order}, near]
            combined |= near | combined
    return [*filter(None, (before_copies, after_copies)), *each]
