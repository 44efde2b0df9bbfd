"""Search for faster layouts: entry layouts, then genetic and random proposals around the best so far."""

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
from xlarank.data.hlo.compiler.cycles import read_operations
from xlarank.data.hlo.compiler.outcome import Journal, Outcome, Status
from xlarank.data.hlo.compiler.session import Compiler
from xlarank.data.hlo.messages import instructions
from xlarank.pipelines.advise.lines import source_line
from xlarank.pipelines.advise.space import Space
from xlarank.pipelines.programs.candidates import Codes, breed, random_configurations
from xlarank.pipelines.programs.sources import compile_new
from xlarank.pipelines.programs.timing import Stopwatch
from xlarank.pipelines.support.progress import Progress, steps_of

#: Configurations compiled per step: fewer adapt the search sooner, more keep several processes busy.
BATCH: Final = 4
#: Number of fastest configurations from which the genetic search breeds.
_PARENTS: Final = 8
#: Time limit of a compilation: a multiple of the default configuration's, and the minimum in seconds.
_LIMIT_FACTOR, _LEAST_LIMIT = 4.0, 10.0
#: Maximum number of copy-avoiding configurations per round, and distance in operations from a copy.
_GUIDED, _STEPS = 12, 4
#: Consecutive proposals of known or unpromising programs that end the search.
_IDLE: Final = 24
#: Maximum proposals as a multiple of the budget; one that is screened out takes 1/5 to 2/3 of a compilation.
_LOOKS: Final = 3
#: The compiler's message if it cannot generate code for an operation.
_NO_CODE: Final = re.compile(r"Custom emitter .*not found")
_REMEDIES: Final = {
    Status.TIMEOUT: "give it more seconds with `limit`",
    Status.CRASHED: "the compiler itself failed: try another `target` or version of libtpu",
}


class NoCodeError(CompilerError):
    """The compiler cannot generate code for an operation of the program."""


def around_copies(text: str) -> list[dict[tuple[int, ...], Order]]:
    """Return layouts, by dimensions, that might avoid copies of a compiled program, costliest copies first.

    Either producers get the copy's output layout, or consumers its input layout. First for all copies
    together; then, for each copy, for its value alone and for all values of its rank within `_STEPS`.
    """
    operations = {(op.computation, op.name): op for op in read_operations(text)}
    above, below = defaultdict(list), defaultdict(list)
    for op in operations.values():
        for name in op.operands:
            above[op.computation, op.name].append((op.computation, name))
            below[op.computation, name].append((op.computation, op.name))
    orders = []
    together: tuple[dict[tuple[int, ...], Order], ...] = ({}, {})
    copies = [key for key, op in operations.items() if op.relayout and op.total]
    for key in sorted(copies, key=lambda key: -operations[key].total):
        copy = operations[key]
        for order, around, union in zip((copy.layout, copy.before), (above, below), together, strict=True):
            if len(order) != len(copy.dimensions):
                continue
            near = {copy.dimensions: order}
            orders.append(dict(near))
            reached = [key]
            for _ in range(_STEPS):
                reached = [other for last in reached for other in around[last] if other in operations]
                near |= {size: order for last in reached if len(size := operations[last].dimensions) == len(order)}
            orders.append(near)
            union |= near | union
    return [*filter(None, together), *orders]


class LayoutSearch:
    """Search that compiles configurations until a budget is spent.

    Attributes:
        codes, outcomes: all distinct configurations evaluated, the compiler's default first.
        tied: whether a loop passes its outputs to the next step without a copy; others are never the best.
        screening: whether to skip code generation if the optimised module is predicted to be slower.
        guided: whether to try first to avoid copies of the best program.
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
        self.texts = {known.fingerprint: known.text for known in journal.outcomes.values() if known.text}

    @property
    def best(self) -> int:
        """Index of the fastest configuration; ties go to the one that sets fewest layouts, then to the first."""
        return int(np.lexsort([(self.codes > 0).sum(axis=1), self._costs()])[0])

    @property
    def spent(self) -> int:
        """Number of compilations; known programs and those screened out cost nothing."""
        programs = {outcome.fingerprint for outcome in self.outcomes if outcome.status is Status.OK}
        return len(programs) + sum(out.status not in (Status.OK, Status.SCREENED) for out in self.outcomes)

    def text(self, at: int) -> str:
        """Return the compiled program of a configuration that has an estimate."""
        return self.texts[self.outcomes[at].fingerprint]

    def run(self, budget: int, minutes: float, *, entry: bool = True, proposals: bool = True) -> None:
        """Compile up to ``budget`` configurations for up to ``minutes``.

        ``entry`` tries layouts of inputs and outputs chosen by the compiler; ``proposals`` continues the search.
        Raises `CompilerError` if the compiler's default does not compile or has no estimate.
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
            picks = [pick for _, pick in instructions(module) if pick.opcode in ("gather", "scatter")]
            lines = sorted({":".join(map(str, source_line(module, pick))) for pick in picks})
            raise NoCodeError(
                f"the compiler itself fails ({default.message}), with gather or scatter at {', '.join(lines)}",
                expected="operations that libtpu can generate code for without a TPU",
                do="pick elements by products with jax.nn.one_hot instead of by take_along_axis or indices",
            )
        if default.status is not Status.OK or not default.estimate.cycles:
            got = f"the compiler's default has no estimate ({default.message or 'no operation has cycles'})"
            do = _REMEDIES.get(default.status, "check that it compiles in JAX")
            raise CompilerError(got, expected="a program that compiles within the limit", do=do)
        self.progress.step(f"{default.seconds:.1f} s a compilation")

    def _without_copies(self, budget: int, end: float) -> None:
        """Try to avoid copies of the best program (`around_copies`); repeat while it improves."""
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
        """Return new configurations: bred from the fastest, and random ones with the best entry modes."""
        candidates = self.space.candidates
        order = np.argsort(self._costs(screened=True), kind="stable")[:_PARENTS]
        bred = breed(candidates, self.codes[order], (count + 1) // 2, self.rng, known=self.codes)
        drawn = random_configurations(candidates, count - len(bred) + 1, self.rng)[1:]
        drawn[:, -2:] = self.codes[self.best, -2:]
        known = {code.tobytes() for code in np.concatenate([self.codes, bred])}
        fresh = {code.tobytes(): code for code in drawn if code.tobytes() not in known}
        return np.concatenate([bred, *(code[None] for code in fresh.values())])

    def _compile(self, codes: Codes, *, screen: bool) -> None:
        # without screening, retry what was screened out, crashed or took too long
        settled = tuple(Status) if screen else (Status.OK, Status.FAILED)
        best = min(self._costs(), default=np.inf)
        # a much slower compilation generates much more code, hence a slower program
        limit = max(_LEAST_LIMIT, _LIMIT_FACTOR * self.outcomes[0].seconds) if self.outcomes else None
        keys = [self.space.key(code) for code in codes]
        outcomes = compile_new(
            self.compiler, self.journal, keys, lambda at: self.space.module(codes[at]), settled=settled,
            limit=limit, keep=True, screen=float(best) if screen and self._stopwatch is None else None,
        )  # fmt: skip
        if self._stopwatch:
            outcomes = self._stopwatch.time(outcomes, lambda at: self.space.module(codes[at]))
        self.texts |= {outcome.fingerprint: outcome.text for outcome in outcomes if outcome.text}
        before = self.spent
        self.codes = np.concatenate([self.codes, codes])
        new = range(len(self.outcomes), len(self.codes))
        self.outcomes += [replace(outcome, text="") for outcome in outcomes]
        self.tied += [at == 0 or outcome.status is not Status.OK or self.space.tied(self.text(at))
                      for at, outcome in zip(new, outcomes, strict=True)]  # fmt: skip
        if len(self.codes) > 1:
            for _ in range(self.spent - before):
                gain = self.outcomes[0].estimate.cycles / min(self._costs())
                self.progress.step(f"best so far {gain:.3f} times as fast")
        for at in new:
            if not self.tied[at] and self.outcomes[at].estimate.cycles < best and self.spent < self._budget:
                self.space, tied = self.space.tie(self.codes[at], self.text(at))
                self._compile(tied[[not (self.codes == code).all(axis=1).any() for code in tied]], screen=screen)

    def _costs(self, *, screened: bool = False) -> NDArray[np.float64]:
        """Return estimated (with ``screened``, also predicted) cycles, ``(configs,)``; inf if there are none."""
        given = (Status.OK, Status.SCREENED) if screened else (Status.OK,)
        pairs = zip(self.tied, self.outcomes, strict=True)
        return np.array([out.estimate.cycles if tied and out.status in given else np.inf for tied, out in pairs])
