"""Rows kept of each collection: memory and time are not exceeded, and the real dataset fits Kaggle's budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlarank.data.collection import Collection
from xlarank.data.errors import XlarankError
from xlarank.data.sizes import CollectionSize, GraphCounts
from xlarank.pipelines.budgeting.plan import RunSettings, plan_collections

#: Graphs by split, configurations in all, configurable nodes and nodes of a typical graph. Counts are the
#: dataset's; the last two are set high.
OFFICIAL = {
    "layout:xla:random": ((69, 7, 8), 900_000, 120, 5_000),
    "layout:xla:default": ((61, 7, 8), 800_000, 120, 5_000),
    "layout:nlp:random": ((207, 20, 17), 16_100_000, 300, 8_000),
    "layout:nlp:default": ((198, 20, 17), 13_300_000, 300, 8_000),
    "tile:xla": ((5709, 676, 844), 12_900_000, 0, 40),
}


def official() -> list[CollectionSize]:
    """The sizes of TpuGraphs; layout graphs of valid and test count with 1000 configurations each."""
    sizes = []
    for name, (graphs, configs, configurable, nodes) in OFFICIAL.items():
        each = configs // sum(graphs)
        split = {
            part: [GraphCounts(1000 if configurable and part != "train" else each, nodes, configurable)] * count
            for part, count in zip(("train", "valid", "test"), graphs, strict=True)
        }
        sizes.append(CollectionSize(Collection.parse(name), split, families=30))
    return sizes


def test_the_real_dataset_fits_kaggle() -> None:
    plan = plan_collections(official(), RunSettings(hours=12, ram_gb=30, cores=4))
    assert sum(part.first_seconds for part in plan) < 4 * 3600 and all(part.memory_gb <= 30 for part in plan)
    assert all(part.max_configs >= 200 for part in plan if part.collection.kind == "layout")


@given(hours=st.floats(0.001, 24), ram=st.floats(0.5, 64), cores=st.integers(1, 16))
def test_memory_is_not_exceeded_and_more_of_anything_never_keeps_less(hours: float, ram: float, cores: int) -> None:
    for size in official():
        (part,) = plan_collections([size], RunSettings(hours, ram, cores))
        (more,) = plan_collections([size], RunSettings(2 * hours, 2 * ram, cores))
        assert part.memory_gb <= ram or not part.rows
        assert part.rows <= more.rows and part.max_configs <= more.max_configs and part.jobs <= more.jobs


def test_cases_at_the_edge() -> None:
    """The largest files are not built side by side where memory is short; nothing to learn from or to rank."""
    huge = CollectionSize(Collection.parse("layout:nlp:random"), {"train": [GraphCounts(100_000, 20_000, 3143)]}, 1)
    assert [plan_collections([huge], RunSettings(1, ram, 4))[0].jobs for ram in (4, 64)] == [1, 4]
    for split in ("train", "test"):
        size = CollectionSize(Collection.parse("tile:x"), {split: [GraphCounts(10, 3)]}, 0)
        (part,) = plan_collections([size], RunSettings())
        assert part.rows == 0 and set(part.as_row().values()) == {"tile:x", "-"}
    for wrong in ({"hours": 0}, {"hours": float("nan")}, {"ram_gb": -1}, {"seeds": 0}):
        with pytest.raises(XlarankError, match="expected"):
            RunSettings(**wrong)  # type: ignore[arg-type]
