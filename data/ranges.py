"""Allowed ranges of numeric arguments, for the command line and the Python API."""

from __future__ import annotations

import os
from numbers import Integral
from typing import Any, Final

from xlarank.data.errors import XlarankError

MAX_SEED: Final = 2**31 - 1  # limit of the underlying libraries
MAX_ROUNDS: Final = 100_000
MAX_TRIALS: Final = 1_000_000
MAX_SEEDS: Final = 1_000  # averaged boosters
MAX_HOURS: Final = 24.0 * 366  # a year; more is probably a wrong unit
#: More threads (or processes) do not help, and thousands crash the underlying libraries.
MAX_THREADS: Final = max(64, 4 * (os.cpu_count() or 1))

_WHOLE: Final[dict[str, tuple[int, int]]] = {
    "seed": (0, MAX_SEED), "threads": (-1, MAX_THREADS), "jobs": (0, MAX_THREADS), "rounds": (1, MAX_ROUNDS),
    "trials": (1, MAX_TRIALS), "seeds": (1, MAX_SEEDS), "max_configs": (0, 2**31 - 1),
}  # fmt: skip


def require_ranges(**values: Any) -> None:
    """Raise `XlarankError` unless each value lies in the range of its name.

    >>> require_ranges(seed=7, rounds=300)
    >>> require_ranges(seed=-1)
    Traceback (most recent call last):
        ...
    xlarank.data.errors.XlarankError: `seed` is -1; expected a whole number from 0 to 2147483647
    """
    for name, value in values.items():
        low, high = _WHOLE[name]
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not (whole and low <= value <= high):
            raise XlarankError(f"`{name}` is {value!r}", expected=f"a whole number from {low} to {high}")


def thread_count(threads: int) -> int:
    """Return the number of threads for the boosters; -1 becomes 0, all cores."""
    require_ranges(threads=threads)
    return max(0, int(threads))


def require_seconds(name: str, value: float | None) -> None:
    """Raise `XlarankError` unless the value is a non-negative number or None."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and value >= 0):  # also false for NaN
        raise XlarankError(f"`{name}` is {value!r}", expected="seconds, 0 or more")
