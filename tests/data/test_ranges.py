"""Numbers are refused at the door, in one clear line."""

from __future__ import annotations

import numpy as np
import pytest

from xlarank.data.errors import XlarankError
from xlarank.data.ranges import MAX_THREADS, require_ranges, require_seconds, thread_count


@pytest.mark.parametrize(
    "asked",
    [
        {"seed": -1}, {"seed": 2**31}, {"seed": 1.0}, {"seed": "1"}, {"seed": None}, {"seed": True},
        {"threads": -2}, {"threads": 100_000}, {"rounds": 0}, {"rounds": 10**9}, {"trials": 0}, {"seeds": 0},
        {"jobs": -1}, {"jobs": 100_000}, {"max_configs": -1}, {"top": 0},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_out_of_range_is_refused(asked: dict[str, object]) -> None:
    (name,) = asked
    with pytest.raises(XlarankError, match=f"--{name.replace('_', '-')} is .*; expected a whole number from"):
        require_ranges(**asked)


@pytest.mark.parametrize(
    "asked", [{"seed": 0}, {"seed": 2**31 - 1}, {"seed": np.int64(3)}, {"threads": -1}, {"threads": MAX_THREADS}]
)
def test_the_ends_of_a_range_belong_to_it(asked: dict[str, object]) -> None:
    require_ranges(**asked)


def test_minus_one_thread_is_every_core_as_in_other_libraries() -> None:
    assert [thread_count(n) for n in (-1, 0, 1)] == [0, 0, 1]
    with pytest.raises(XlarankError, match="--threads is 100000"):
        thread_count(100_000)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), "10", True])
def test_seconds_that_are_none(seconds: object) -> None:
    with pytest.raises(XlarankError, match=r"--timeout is .*; expected seconds"):
        require_seconds("timeout", seconds)  # type: ignore[arg-type]
    require_seconds("timeout", None)
    require_seconds("timeout", 0)
