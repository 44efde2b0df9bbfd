"""Allowed ranges of numeric arguments."""

from __future__ import annotations

import numpy as np
import pytest

from xlarank.data.errors import XlarankError
from xlarank.data.ranges import MAX_THREADS, require_ranges, require_seconds, thread_count


def test_what_is_out_of_range_is_refused() -> None:
    wrong: dict[str, list[object]] = {
        "seed": [-1, 2**31, 1.0, "1", None, True], "threads": [-2, 100_000], "rounds": [0, 10**9], "trials": [0],
        "seeds": [0], "jobs": [-1, 100_000], "max_configs": [-1],
    }  # fmt: skip
    for name, value in ((name, value) for name, values in wrong.items() for value in values):
        with pytest.raises(XlarankError, match=f"--{name.replace('_', '-')} is .*; expected a whole number from"):
            require_ranges(**{name: value})
    for seed in (0, 2**31 - 1, np.int64(3)):
        require_ranges(seed=seed, threads=MAX_THREADS)
    assert [thread_count(n) for n in (-1, 0, 1)] == [0, 0, 1], "-1 is every core, as in other libraries"
    for seconds in (-1.0, float("nan"), "10", True):
        with pytest.raises(XlarankError, match=r"--timeout is .*; expected seconds"):
            require_seconds("timeout", seconds)  # type: ignore[arg-type]
    for good in (None, 0):
        require_seconds("timeout", good)
