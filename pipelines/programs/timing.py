"""Times of programs on this machine's device, measured in shuffled rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.hlo.compiler.functions import Pasted
from xlarank.data.hlo.compiler.outcome import Estimate, Journal, Outcome, Status
from xlarank.data.hlo.compiler.session import Compiler
from xlarank.data.hlo.messages import Message

#: Minimum number of rounds.
ROUNDS: Final = 24
#: Rounds between comparisons of the order, which must agree three times; number of fastest programs compared.
_INTERVAL, _COMPARED = 8, 5


class Timings:
    """Times of programs: ``seconds (programs, rounds)`` in the order of ``names``; ``problems`` of the rest."""

    def __init__(self, rounds: Sequence[Mapping[str, float | str]]) -> None:
        self.problems = {name: value for times in rounds for name, value in times.items() if isinstance(value, str)}
        self.names = sorted(rounds[0].keys() - self.problems.keys())
        self.seconds = np.array([[times[name] for times in rounds] for name in self.names], np.float64)

    def nanoseconds(self) -> dict[str, int]:
        """Return the time of every program in whole nanoseconds."""
        return dict(zip(self.names, np.rint(fastest(self.seconds) * 1e9).astype(int).tolist(), strict=True))

    def standard_errors(self) -> dict[str, int]:
        """Return the bootstrap standard errors of the times in ns, over rounds."""
        count = self.seconds.shape[1]
        drawn = np.random.default_rng(0).integers(0, count, (100, count))
        errors = np.std([fastest(self.seconds[:, rounds]) for rounds in drawn], axis=0)
        return dict(zip(self.names, np.rint(errors * 1e9).astype(int).tolist(), strict=True))

    def speedup(self, before: str, after: str) -> tuple[float, float, float]:
        """Return the median speedup over rounds and its 95 % interval."""
        old, new = (self.seconds[self.names.index(name)] for name in (before, after))
        ratios, count = np.sort(old / new), len(old)
        low = max(0, int((count - 1.96 * count**0.5) / 2))
        return float(np.median(ratios)), float(ratios[low]), float(ratios[count - 1 - low])


def fastest(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of the fastest sixth of the rounds, at least one: ``(programs, rounds) -> (programs,)``.

    >>> fastest(np.array([[3.0, 1.0, 2.0, 9.0, 9.0, 9.0, 1.5, 9.0, 9.0, 9.0, 9.0, 9.0]]))
    array([1.25])
    """
    count = max(1, times.shape[1] // 6)
    mean: NDArray[np.float64] = np.sort(times, axis=1)[:, :count].mean(axis=1)
    return mean


def time_programs(
    compiler: Compiler, plain: Message, programs: Mapping[str, Message | Pasted], *, minutes: float,
    min_rounds: int = ROUNDS, seed: int = 0, journal: Journal | None = None,
    step: Callable[[str], None] = lambda note: None,
) -> Timings:  # fmt: skip
    """Run programs on inputs of ``plain`` until the order of the five fastest is settled or ``minutes`` are over.

    Rounds of exactly these programs in the journal are reused; new ones are added.
    """
    rounds = [times for times in journal.rounds if times.keys() == programs.keys()] if journal else []
    end = 0.0
    if not _settled(rounds, min_rounds):
        with closing(compiler.measure(plain, programs, seed=seed, done=len(rounds))) as new_rounds:
            for times in new_rounds:
                end = end or time.monotonic() + 60 * minutes  # the time to compile does not count
                rounds.append(times)
                if journal:
                    journal.add_round(times)
                if len(rounds) <= min_rounds:
                    step("")
                if _settled(rounds, min_rounds) or (len(rounds) > 1 and time.monotonic() > end):
                    break
    return Timings(rounds)


def _settled(rounds: Sequence[Mapping[str, float | str]], min_rounds: int) -> bool:
    if len(rounds) < min_rounds or len(rounds) % _INTERVAL:
        return False
    times = Timings(rounds).seconds
    counts = (len(rounds) - back * _INTERVAL for back in range(3))
    return len({tuple(np.argsort(fastest(times[:, :count]))[:_COMPARED].tolist()) for count in counts}) == 1


class Stopwatch:
    """Times of a search's programs relative to the compiler's default, on targets without estimates."""

    def __init__(self, compiler: Compiler, journal: Journal) -> None:
        self.compiler, self.journal = compiler, journal
        self._default: tuple[str, Message] | None = None
        self._results: dict[str, dict[str, Any]] = {}

    def time(self, outcomes: Sequence[Outcome], module: Callable[[int], Message]) -> list[Outcome]:
        """Return outcomes with nanoseconds as their estimates; the first program timed is taken as the default."""
        results = self._results
        compiled = [(at, outcome.fingerprint) for at, outcome in enumerate(outcomes) if outcome.status is Status.OK]
        if programs := {key: module(at) for at, key in compiled if key not in results}:
            name, plain = self._default = self._default or next(iter(programs.items()))
            timings = time_programs(self.compiler, plain, {name: plain} | programs, minutes=1, journal=self.journal)
            results.setdefault(name, {"estimate": Estimate(timings.nanoseconds()[name])})
            for key in programs.keys() - {name}:
                if key in timings.problems:
                    results[key] = {"status": Status.FAILED, "message": timings.problems[key]}
                else:
                    speedup = timings.speedup(name, key)[0]
                    results[key] = {"estimate": Estimate(round(results[name]["estimate"].cycles / speedup))}
        return [replace(outcome, **results.get(outcome.fingerprint, {})) for outcome in outcomes]
