"""Allowed ranges of numeric arguments, for the command line and the Python API."""

from __future__ import annotations

import math
import operator
import os
from typing import Any, Final

from xlarank.data.errors import XlarankError

#: Every library below takes a seed of 31 bits.
MAX_SEED: Final = 2**31 - 1
MAX_ROUNDS: Final = 100_000
MAX_TRIALS: Final = 1_000_000
#: Boosters that are averaged.
MAX_SEEDS: Final = 1_000
#: A year; more is a mistake of units.
MAX_HOURS: Final = 24.0 * 366
#: More threads (or processes) bring nothing; thousands of them crash the libraries below.
MAX_THREADS: Final = max(64, 4 * (os.cpu_count() or 1))

_WHOLE: Final[dict[str, tuple[int, int]]] = {
    "seed": (0, MAX_SEED),
    "threads": (-1, MAX_THREADS),
    "jobs": (0, MAX_THREADS),
    "rounds": (1, MAX_ROUNDS),
    "trials": (1, MAX_TRIALS),
    "seeds": (1, MAX_SEEDS),
    "max_configs": (0, 2**31 - 1),
    "top": (1, 2**31 - 1),
}


def require_ranges(**values: Any) -> None:
    """Raise `XlarankError` unless each value lies in the range of its name.

    >>> require_ranges(seed=7, rounds=300)
    >>> require_ranges(seed=-1)
    Traceback (most recent call last):
        ...
    xlarank.data.errors.XlarankError: --seed is -1; expected a whole number from 0 to 2147483647
    """
    for name, value in values.items():
        low, high = _WHOLE[name]
        try:
            fits = not isinstance(value, bool) and low <= operator.index(value) <= high
        except TypeError:
            fits = False
        if not fits:
            raise XlarankError(
                f"--{name.replace('_', '-')} is {value!r}", expected=f"a whole number from {low} to {high}"
            )


def thread_count(threads: int) -> int:
    """Return the number of threads for the boosters, where 0 means every core, as -1 does in ``threads``.

    Raises `XlarankError` for a number out of range.

    >>> thread_count(-1), thread_count(0), thread_count(3)
    (0, 0, 3)
    """
    require_ranges(threads=threads)
    return max(0, operator.index(threads))


def require_seconds(name: str, value: float | None) -> None:
    """Raise `XlarankError` for seconds that are negative or no number; None is no limit."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value < 0:
        raise XlarankError(f"--{name} is {value!r}", expected="seconds, 0 or more")
