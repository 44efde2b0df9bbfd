"""Search of faster layouts: entry layouts first, then genetic and random proposals around the best so far."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import CompilerError
from xlarank.data.hlo.compiler.constrain import Order
from xlarank.data.hlo.compiler.operations import read_operations
from xlarank.data.hlo.compiler.outcome import Journal, Outcome, Status
from xlarank.data.hlo.compiler.session import Compiler
from xlarank.data.hlo.messages import instructions
from xlarank.pipelines.advise.lines import source_line
from xlarank.pipelines.advise.space import Space
from xlarank.pipelines.programs.candidates import Codes, breed, random_configurations
from xlarank.pipelines.programs.sources import compile_new
from xlarank.pipelines.programs.timing import Stopwatch
from xlarank.pipelines.support.progress import Progress, steps_of

#: Configurations compiled before the next are chosen: fewer learn more from each, more use several processes.
BATCH: Final = 4
#: The fastest configurations so far, from which the genetic search breeds.
_PARENTS: Final = 8
#: Limit on compilations: this multiple of the time of the compiler's default, but at least so many seconds.
_LIMIT_FACTOR: Final = 4.0
_LEAST_LIMIT: Final = 10.0
#: Configurations that copies ask for, and steps from a copy to operations that are taken to belong to it.
_GUIDED, _STEPS = 12, 4
#: Proposals in a row that became known or unpromising programs, before nothing is taken to be left.
_IDLE: Final = 24
#: Proposals looked at, as a multiple of the budget: one that is not compiled takes a fifth to two thirds as long.
_LOOKS: Final = 3


#: How the compiler says that it has no code for an operation.
_NO_CODE: Final = re.compile(r"Custom emitter .*not found")
_REMEDIES: Final = {
    Status.TIMEOUT: "give it more seconds with `limit`",
    Status.CRASHED: "the compiler itself failed: try another `target` or version of libtpu",
}


class NoCodeError(CompilerError):
    """The compiler fails by itself, not for what the program says."""


def around_copies(text: str) -> list[dict[tuple[int, ...], Order]]:
    """Return orders by dimensions that might spare copies of a compiled program, the costliest first.

    What leads to a copy gets the layout that it makes, what follows keeps the one before: around all copies, then
    around each, the copied value alone, or all of its rank within a few steps.
    """
    operations = {(one.computation, one.name): one for one in read_operations(text)}
    above, below = defaultdict(list), defaultdict(list)
    for one in operations.values():
        for name in one.operands:
            above[one.computation, one.name].append((one.computation, name))
            below[one.computation, name].append((one.computation, one.name))
    found = []
    together: tuple[dict[tuple[int, ...], Order], ...] = ({}, {})
    copies = [key for key, one in operations.items() if one.relayout and one.total]
    for key in sorted(copies, key=lambda key: -operations[key].total):
        copy = operations[key]
        for order, around, union in zip((copy.layout, copy.before), (above, below), together, strict=True):
            if len(order) != len(copy.dimensions):
                continue
            near = {copy.dimensions: order}
            found.append(dict(near))
            reached = [key]
            for _ in range(_STEPS):
                reached = [other for one in reached for other in around[one] if other in operations]
                near |= {size: order for one in reached if len(size := operations[one].dimensions) == len(order)}
            found.append(near)
            union |= near | union
    return [*filter(None, together), *found]


class LayoutSearch:
    """Compiles configurations until a budget is spent.

    Attributes:
        codes, outcomes: everything looked at, the compiler's default first, without repetitions.
        tied: whether a loop gives its outputs to the next step as they lie; else they never are the best.
        screening: leave out code where the optimised module promises nothing.
        guided: try first what the copies of the best program ask for.
    """

    screening = True
    guided = True

    def __init__(
        self, compiler: Compiler, space: Space, journal: Journal, rng: np.random.Generator, progress: Progress
    ) -> None:
        self.compiler, self.space, self.journal, self.rng, self.progress = compiler, space, journal, rng, progress
        self.codes: Codes = np.zeros((0, space.candidates.nodes), np.int32)
        self.outcomes: list[Outcome] = []
        self.tied: list[bool] = []
        self.stopped, self._budget = "", 0
        self._stopwatch = None if compiler.target.estimated else Stopwatch(compiler, journal)
        self.texts = {one.fingerprint: one.text for one in journal.outcomes.values() if one.text}

    @property
    def best(self) -> int:
        """The fastest by the estimate; of equals the one that sets fewest layouts, then the first."""
        return int(np.lexsort([(self.codes > 0).sum(axis=1), self._costs()])[0])

    @property
    def spent(self) -> int:
        """Compilations so far: what became a known program, or was screened out, costs nothing."""
        programs = {one.fingerprint for one in self.outcomes if one.status is Status.OK}
        return len(programs) + sum(one.status not in (Status.OK, Status.SCREENED) for one in self.outcomes)

    def text(self, at: int) -> str:
        """The compiled program of a configuration that has an estimate."""
        return self.texts[self.outcomes[at].fingerprint]

    def run(self, budget: int, minutes: float, *, entry: bool = True, proposals: bool = True) -> None:
        """Compile up to ``budget`` configurations for up to ``minutes``.

        ``entry`` lets the compiler choose how inputs and outputs lie, ``proposals`` searches on.
        Raises `CompilerError` when not even the compiler's default compiles or has an estimate.
        """
        end, self._budget = time.monotonic() + 60 * minutes, budget
        self.compiler.know({key: self.journal.estimates[key] for key in self.texts}, self.texts.values())
        what = f"compiling {self.space.program.name} for {self.compiler.target.name}"
        with steps_of(self.progress, what, budget):
            self._compile(self.space.entry(False, False), screen=False)
            self._check_default()
            if entry:
                for sides in ((True, True), (True, False), (False, True)):
                    if self.spent < budget and time.monotonic() < end:
                        self._compile(self.space.entry(*sides), screen=False)
            if proposals:
                if self.guided:
                    self._without_copies(budget, end)
                self._propose(budget, end)
            self.stopped = self.stopped or f"the budget of {budget} compilations is spent"

    def _check_default(self) -> None:
        default = self.outcomes[0]
        if _NO_CODE.search(default.message):
            module = self.space.program.module
            picks = [one for _, one in instructions(module) if one.opcode in ("gather", "scatter")]
            lines = sorted({":".join(map(str, source_line(module, one))) for one in picks})
            raise NoCodeError(
                f"the compiler itself fails ({default.message}), with gather or scatter at {', '.join(lines)}",
                expected="operations that libtpu can generate code for without a TPU",
                do="pick elements by products with jax.nn.one_hot instead of by take_along_axis or indices",
            )
        if default.status is not Status.OK or not default.estimate.cycles:
            raise CompilerError(
                f"the compiler's default has no estimate ({default.message or 'no operation has cycles'})",
                expected="a program that compiles within the limit",
                do=_REMEDIES.get(default.status, "check that it compiles in JAX"),
            )
        self.progress.step(f"{default.seconds:.1f} s a compilation")

    def _without_copies(self, budget: int, end: float) -> None:
        """Give operations around each copy of the best program the layout it makes or had; again as it helps."""
        best = -1
        while best != self.best and self.spent < budget and time.monotonic() < end:
            best = self.best
            self.space, codes = self.space.toward(self.codes[best], around_copies(self.text(best))[:_GUIDED])
            for at in range(0, len(codes), BATCH):
                if (left := budget - self.spent) > 0:
                    self._compile(codes[at : at + min(BATCH, left)], screen=self.screening)

    def _propose(self, budget: int, end: float) -> None:
        idle = 0
        while self.spent < budget:
            codes = self.proposals(min(BATCH, budget - self.spent))
            if not len(codes) or idle >= _IDLE:
                self.stopped = "nothing is left to try: other proposals become known or slower programs"
            elif len(self.codes) >= _LOOKS * budget:
                self.stopped = f"{_LOOKS} times as many proposals as the budget were looked at"
            elif time.monotonic() >= end:
                self.stopped = "the time is over"
            if self.stopped:
                return
            before = self.spent
            self._compile(codes, screen=self.screening)
            idle = 0 if self.spent > before else idle + len(codes)

    def proposals(self, count: int) -> Codes:
        """Up to ``count`` new configurations: bred from the fastest, and random under the best entry modes."""
        candidates = self.space.candidates
        order = np.argsort(self._costs(screened=True), kind="stable")[:_PARENTS]
        bred = breed(candidates, self.codes[order], (count + 1) // 2, self.rng, known=self.codes)
        drawn = random_configurations(candidates, count - len(bred) + 1, self.rng)[1:]
        drawn[:, -2:] = self.codes[self.best, -2:]
        known = {code.tobytes() for code in np.concatenate([self.codes, bred])}
        fresh = {code.tobytes(): code for code in drawn if code.tobytes() not in known}
        return np.concatenate([bred, *(code[None] for code in fresh.values())])

    def _compile(self, codes: Codes, *, screen: bool) -> None:
        # without screening, what was screened out, crashed or took too long is tried again
        settled = tuple(Status) if screen else (Status.OK, Status.FAILED)
        best = min(self._costs(), default=np.inf)
        # a much slower compilation makes much more code, and a slower program with it
        limit = max(_LEAST_LIMIT, _LIMIT_FACTOR * self.outcomes[0].seconds) if self.outcomes else None
        keys = [self.space.key(code) for code in codes]
        found = compile_new(
            self.compiler, self.journal, keys, lambda at: self.space.module(codes[at]), settled=settled,
            limit=limit, keep=True, screen=float(best) if screen and self._stopwatch is None else None,
        )  # fmt: skip
        if self._stopwatch:
            found = self._stopwatch.time(found, lambda at: self.space.module(codes[at]))
        self.texts |= {one.fingerprint: one.text for one in found if one.text}
        before = self.spent
        self.codes = np.concatenate([self.codes, codes])
        new = range(len(self.outcomes), len(self.codes))
        self.outcomes += [replace(one, text="") for one in found]
        self.tied += [at == 0 or one.status is not Status.OK or self.space.tied(self.text(at))
                      for at, one in zip(new, found, strict=True)]  # fmt: skip
        if len(self.codes) > 1:
            for _ in range(self.spent - before):
                gain = self.outcomes[0].estimate.cycles / min(self._costs())
                self.progress.step(f"best so far {gain:.3f} times as fast")
        for at in new:
            if not self.tied[at] and self.outcomes[at].estimate.cycles < best and self.spent < self._budget:
                self.space, tied = self.space.tie(self.codes[at], self.text(at))
                self._compile(tied[[not (self.codes == code).all(axis=1).any() for code in tied]], screen=screen)

    def _costs(self, *, screened: bool = False) -> NDArray[np.float64]:
        """``(configs,)`` estimated cycles, infinite for what has none; with ``screened`` predicted ones, too."""
        given = (Status.OK, Status.SCREENED) if screened else (Status.OK,)
        return np.array([
            one.estimate.cycles if tied and one.status in given else np.inf
            for tied, one in zip(self.tied, self.outcomes, strict=True)
        ])  # fmt: skip
