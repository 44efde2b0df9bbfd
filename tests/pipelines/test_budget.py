"""The plan: what it promises must hold for any budget, and the real dataset must fit Kaggle's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlarank.data.collection import Collection
from xlarank.data.errors import XlarankError
from xlarank.data.sizes import CollectionSize, GraphSize
from xlarank.pipelines.budgeting.plan import MIN_TRIALS, Budget, Plan, plan_budget, share_tuning

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
    """The sizes of TpuGraphs; layout graphs of the test split have 1000 configurations each."""
    sizes = []
    for name, (graphs, configs, configurable, nodes) in OFFICIAL.items():
        each = configs // sum(graphs)
        split = zip(("train", "valid", "test"), graphs, strict=True)
        sizes.append(
            CollectionSize(
                Collection.parse(name),
                {
                    part: [GraphSize(1000 if configurable and part == "test" else each, nodes, configurable)]
                    * count
                    for part, count in split
                },
                families=30,
            )
        )
    return sizes


def totals(plan: Plan) -> tuple[float, float, float]:
    return plan.seconds / 3600, max(part.memory_gb for part in plan.collections), plan.disk_gb


def test_the_real_dataset_fits_kaggle() -> None:
    plan = plan_budget(official(), Budget(hours=12, ram_gb=30, cores=4, disk_gb=20))
    hours, memory, disk = totals(plan)
    assert hours <= 12 * 0.9 and memory <= 30 * 0.75 and disk <= 20
    assert all(part.refined and part.trials >= 15 and part.rounds == 300 for part in plan.collections)
    assert all(part.max_configs >= 200 for part in plan.collections if part.collection.kind == "layout")
    assert plan.notes == ()


def test_the_largest_layout_files_are_not_built_side_by_side_where_memory_is_short() -> None:
    huge = CollectionSize(Collection.parse("layout:nlp:random"), {"train": [GraphSize(100_000, 20_000, 3143)]}, 1)
    assert plan_budget([huge], Budget(ram_gb=4)).jobs == 1
    assert plan_budget([huge], Budget(ram_gb=64, cores=4)).jobs == 4


@given(
    hours=st.floats(0.001, 24), ram=st.floats(1, 64), cores=st.integers(1, 16), disk=st.floats(0.1, 40),
    seeds=st.integers(1, 5),
)  # fmt: skip
def test_no_budget_is_exceeded(hours: float, ram: float, cores: int, disk: float, seeds: int) -> None:
    plan = plan_budget(official(), Budget(hours, ram, cores, disk), seeds=seeds)
    spent, _, stored = totals(plan)
    assert spent <= hours and stored <= disk
    assert all(part.memory_gb <= ram for part in plan.collections if part.trained)
    assert all(part.trials == 0 or part.trials >= MIN_TRIALS for part in plan.collections)
    assert all(part.trained or not part.refined for part in plan.collections)


def test_more_time_never_trains_fewer_collections() -> None:
    trained = [
        sum(part.trained for part in plan_budget(official(), Budget(hours)).collections)
        for hours in (0.001, 0.01, 0.1, 0.5, 1, 3, 12)
    ]
    assert trained == sorted(trained) and trained[0] == 0 and trained[-1] == 5


def test_what_the_budget_is_too_small_for_is_said() -> None:
    short = plan_budget(official(), Budget(hours=0.25))
    assert any("too small for any model (the default order stays): " in note for note in short.notes)
    assert any("too small for tuning: " in note for note in plan_budget(official(), Budget(hours=1)).notes)
    assert not any("tuning" in note for note in plan_budget(official(), Budget(hours=1), trials=0).notes)


def test_less_memory_means_fewer_rows() -> None:
    rows = [
        sum(part.rows for part in plan_budget(official(), Budget(hours=200, ram_gb=ram)).collections)
        for ram in (2, 8, 30)
    ]
    assert rows == sorted(rows) and rows[0] < rows[1] < rows[2]


def test_a_collection_without_training_graphs_is_left_to_the_default_order() -> None:
    size = CollectionSize(Collection.parse("tile:x"), {"test": [GraphSize(10, 3)]}, 0)
    plan = plan_budget([size], Budget())
    assert not plan.collections[0].trained
    assert plan.notes == ("tile:x has nothing to learn from or nothing to rank",)


def test_one_family_is_trained_but_not_tuned() -> None:
    graphs = {"train": [GraphSize(100, 10, 5)] * 3, "test": [GraphSize(100, 10, 5)]}
    (part,) = plan_budget([CollectionSize(Collection.parse("layout:x:y"), graphs, 1)], Budget()).collections
    assert part.refined and part.trials == 0


def test_tuning_shares_what_is_left_at_the_pace_that_was_measured() -> None:
    parts = plan_budget(official(), Budget()).collections
    fast = share_tuning(parts, 30_000)
    slow = share_tuning(parts, 30_000, pace={part.collection: 3.0 for part in parts})
    for part in parts:
        assert fast[part.collection][0] > slow[part.collection][0]
    assert sum(seconds for _, seconds in slow.values()) <= 30_000 - 3 * sum(part.second_pass for part in parts)
    assert set(share_tuning(parts, 60).values()) == {(0, 0.0)}


@pytest.mark.parametrize("wrong", [{"hours": 0}, {"hours": float("nan")}, {"ram_gb": -1}, {"cores": 0}])
def test_a_budget_of_nothing_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(XlarankError, match="expected"):
        Budget(**wrong)  # type: ignore[arg-type]


def test_too_little_memory_for_any_model_keeps_the_default_order() -> None:
    """A model of two configurations a graph is worse than the order of the file."""
    plan = plan_budget(official(), Budget(hours=12, ram_gb=0.01, cores=4, disk_gb=20))
    assert not any(part.trained or part.refined or part.trials for part in plan.collections)
    (note,) = plan.notes
    assert note.startswith("the budget is too small for any model (the default order stays): layout:xla:random")


def test_a_full_disk_is_no_matter_of_an_option() -> None:
    with pytest.raises(XlarankError) as caught:
        Budget(disk_gb=0.0)
    assert "--budget" not in str(caught.value) and "pass another --workspace" in caught.value.do
