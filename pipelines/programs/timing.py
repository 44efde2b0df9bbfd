"""Timing of programs on the device, in rounds, until the order of the fastest is settled."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import CompilerError, counted
from xlarank.data.hlo.messages import Message
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.support.progress import steps_of

#: Seconds of programs, or the reasons for failure.
Round: TypeAlias = dict[str, float | str]

#: Minimum number of rounds in which programs are timed, unless the time is over.
ROUNDS: Final = 24
#: Rounds between comparisons of the order, three of which must agree; programs compared.
_INTERVAL = 8
_COMPARED = 5
#: Minimum number of rounds for a label.
_LEAST = 8


def time_programs(
    compiler: Compiler,
    plain: Message,
    programs: Mapping[str, Message],
    *,
    minutes: float,
    min_rounds: int = ROUNDS,
    seed: int = 0,
    known: Sequence[Round] = (),
    keep: Callable[[Round], None] = lambda times: None,
) -> Timings:
    """Run programs on inputs of ``plain`` until the order of the five fastest is settled.

    They end after ``minutes``, too, loading not counted. ``known`` rounds of exactly these programs
    count; ``keep`` receives the new ones.
    """
    rounds = [times for times in known if times.keys() == programs.keys()]
    if _settled(rounds, min_rounds):
        return Timings(rounds)
    title = f"loading {len(programs)} programs, then measuring rounds"
    planned = len(programs) + max(1, min_rounds - len(rounds))
    with (
        steps_of(title, planned) as step,
        closing(compiler.measure(plain, programs, seed=seed, done=len(rounds), step=step)) as made,
    ):
        end = None
        for times in made:
            end = end or time.monotonic() + 60 * minutes  # loading does not count
            rounds.append(times)
            keep(times)
            is_last = _settled(rounds, min_rounds) or time.monotonic() > end
            is_more = len(rounds) >= min_rounds and not is_last  # one more, at least
            step(f"round {len(rounds)}", more=int(is_more))
            if is_last:
                break
    if len(rounds) < _LEAST:
        got = f"{counted(len(rounds), 'round')} of measurements in {minutes:g} minutes"
        do = "run it again with more `minutes`, or measure fewer configurations"
        raise CompilerError(got, expected=f"at least {_LEAST}", do=do)
    return Timings(rounds)


def _settled(rounds: Sequence[Round], min_rounds: int) -> bool:
    if len(rounds) < min_rounds or len(rounds) % _INTERVAL:
        return False
    times = Timings(rounds).seconds
    orders = set()
    for back in range(3):
        earlier = times[:, : len(rounds) - back * _INTERVAL]
        orders.add(tuple(np.argsort(fastest(earlier))[:_COMPARED].tolist()))
    return len(orders) == 1


class Timings:
    """``seconds (programs, rounds)`` in the order of ``names``; ``problems`` of other programs."""

    def __init__(self, rounds: Sequence[Round]) -> None:
        self.problems: dict[str, str] = {}
        for times in rounds:
            for name, value in times.items():
                if isinstance(value, str):
                    self.problems[name] = value
        self.names = sorted(rounds[0].keys() - self.problems.keys())
        seconds = [[times[name] for times in rounds] for name in self.names]
        self.seconds = np.array(seconds, np.float64)

    def nanoseconds(self) -> dict[str, int]:
        """Return the time of every program in whole nanoseconds."""
        nanoseconds = np.rint(fastest(self.seconds) * 1e9).astype(int)
        return dict(zip(self.names, nanoseconds.tolist(), strict=True))

    def standard_errors(self) -> dict[str, int]:
        """Return the bootstrap standard errors of the times in ns, over rounds."""
        count = self.seconds.shape[1]
        drawn = np.random.default_rng(0).integers(0, count, (100, count))
        errors = np.std([fastest(self.seconds[:, rounds]) for rounds in drawn], axis=0)
        return dict(zip(self.names, np.rint(errors * 1e9).astype(int).tolist(), strict=True))

    def speedup(self, before: str, after: str) -> tuple[float, float, float]:
        """Return the median speedup over rounds and its 95 % interval."""
        old, new = (self.seconds[self.names.index(name)] for name in (before, after))
        ratios = np.sort(old / new)
        count = len(old)
        low = max(0, int((count - 1.96 * count**0.5) / 2))
        return float(np.median(ratios)), float(ratios[low]), float(ratios[count - 1 - low])


def fastest(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of the fastest sixth of the rounds, ``(programs, rounds) -> (programs,)``.

    >>> fastest(np.array([[3.0, 1.0, 2.0, 9.0, 9.0, 9.0, 1.5, 9.0, 9.0, 9.0, 9.0, 9.0]]))
    array([1.25])
    """
    count = max(1, times.shape[1] // 6)
    mean: NDArray[np.float64] = np.sort(times, axis=1)[:, :count].mean(axis=1)
    return mean
