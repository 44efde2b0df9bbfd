"""Values from outside: JSON of the right types, numbers within their ranges."""

from dataclasses import asdict, dataclass, field, make_dataclass
from typing import Any

import numpy as np
import pytest

from xlarank.data.errors import MAX_THREADS, XlarankError, require_ranges, require_seconds
from xlarank.data.files import from_json

Inner = make_dataclass("Inner", [("size", int)])


@dataclass
class Outer:
    name: str
    share: float
    inner: Inner
    names: dict[str, list[str]]
    params: dict[str, Any] = field(default_factory=dict)
    note: str | None = None
    done: bool = False


GOOD = Outer("a", 0.5, Inner(3), {"train": ["x"]}, {"anything": [1, None]}, "n", True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, "name is '3', not str"),
        *(({"share": value}, "share is") for value in ("0.5", float("nan"), True, 10**400)),
        *(({"inner": [3]}, "inner is no JSON object"), ({"inner": {}}, "inner lacks size")),
        *(({"inner": {"size": value}}, "size is") for value in (3.0, True)),
        *(({"names": []}, "names is"), ({"names": {"train": "x"}}, "names.train is")),
        ({"names": {"train": [1]}}, "an entry of names.train is '1'"),
        *(
            ({"note": 1}, "note is"),
            ({"done": 1}, "done is"),
            ({"more": 1}, "unknown entry 'more'"),
        ),
        *((value, "it is no JSON object") for value in (None, 3, "text", [], [{}])),
    ],
)
def test_values_of_wrong_types_are_refused_by_name(change: Any, message: str) -> None:
    assert from_json(Outer, asdict(GOOD)) == GOOD
    short = {"name": "a", "share": 1, "inner": {"size": 3}, "names": {}}
    assert from_json(Outer, short) == Outer("a", 1.0, Inner(3), {})
    with pytest.raises(TypeError, match=message):
        from_json(Outer, {**asdict(GOOD), **change} if isinstance(change, dict) else change)


def test_numbers_out_of_range_are_refused() -> None:
    for name, *values in (
        ("seed", -1, 2**31, 1.0, "1", None, True),
        *(("threads", -2, 100_000), ("rounds", 0, 10**9), ("trials", 0), ("seeds", 0)),
        *(("jobs", -1, 100_000), ("max_configs", -1)),
    ):
        for value in values:
            with pytest.raises(XlarankError, match=f"`{name}` is .*; expected a whole number from"):
                require_ranges(**{name: value})
    for seed in (0, 2**31 - 1, np.int64(3)):
        require_ranges(seed=seed, threads=MAX_THREADS)
    for seconds in (-1.0, float("nan"), "10", True):
        with pytest.raises(XlarankError, match=r"`timeout` is .*; expected seconds"):
            require_seconds("timeout", seconds)  # type: ignore[arg-type]
    for seconds in (None, 0):
        require_seconds("timeout", seconds)
