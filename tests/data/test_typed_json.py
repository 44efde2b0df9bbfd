"""A file that somebody edited gives one clear error, not an object of wrong parts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from xlarank.data.typed_json import from_json


@dataclass
class Inner:
    size: int


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
        *(({"share": value}, "share is") for value in ("0.5", float("nan"), True)),
        ({"inner": [3]}, "inner is no JSON object"),
        *(({"inner": {"size": value}}, "size is") for value in (3.0, True)),
        ({"inner": {}}, "inner lacks size"),
        ({"names": []}, "names is"),
        ({"names": {"train": "x"}}, "names.train is"),
        ({"names": {"train": [1]}}, "an entry of names.train is '1'"),
        ({"note": 1}, "note is"),
        ({"done": 1}, "done is"),
        ({"more": 1}, "unknown entry 'more'"),
        *((value, "it is no JSON object") for value in (None, 3, "text", [], [{}])),
    ],
)
def test_what_was_written_is_read_and_another_type_refused_by_name(change: Any, message: str) -> None:
    assert from_json(Outer, asdict(GOOD)) == GOOD
    short = {"name": "a", "share": 1, "inner": {"size": 3}, "names": {}}
    assert from_json(Outer, short) == Outer("a", 1.0, Inner(3), {})
    with pytest.raises(TypeError, match=message):
        from_json(Outer, {**asdict(GOOD), **change} if isinstance(change, dict) else change)
