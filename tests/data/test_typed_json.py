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


def test_what_was_written_is_read() -> None:
    assert from_json(Outer, asdict(GOOD)) == GOOD
    short = {"name": "a", "share": 1, "inner": {"size": 3}, "names": {}}
    assert from_json(Outer, short) == Outer("a", 1.0, Inner(3), {})


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": 3}, "name is '3', not str"),
    ({"share": "0.5"}, "share is"),
    ({"share": float("nan")}, "share is"),
    ({"share": True}, "share is"),
    ({"inner": [3]}, "inner is no JSON object"),
    ({"inner": {"size": 3.0}}, "size is"),
    ({"inner": {"size": True}}, "size is"),
    ({"inner": {}}, "inner lacks size"),
    ({"names": []}, "names is"),
    ({"names": {"train": "x"}}, "names.train is"),
    ({"names": {"train": [1]}}, "an entry of names.train is '1'"),
    ({"note": 1}, "note is"),
    ({"done": 1}, "done is"),
    ({"more": 1}, "unknown entry 'more'"),
]


def test_another_type_is_refused_by_name() -> None:
    for change, message in WRONG:
        with pytest.raises(TypeError, match=message):
            from_json(Outer, {**asdict(GOOD), **change})
    for value in (None, 3, "text", [], [{}]):
        with pytest.raises(TypeError, match="is no JSON object"):
            from_json(Outer, value)
