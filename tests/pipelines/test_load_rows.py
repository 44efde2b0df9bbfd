"""Stored rows as frames: the values and folds that rankers are trained on."""

import numpy as np
import polars as pl
import pytest

import xlarank
from tests.pipelines.trees import FAST, LAYOUT, TILE, build, stored
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, FeatureStoreError
from xlarank.data.workspace import Workspace
from xlarank.features.block import Tier
from xlarank.features.recipe import FeatureSettings
from xlarank.models.validation.folds import FoldPlan
from xlarank.pipelines.training.training_sets import read_training_set


@pytest.mark.parametrize("collection", [LAYOUT, TILE])
def test_rows_are_those_of_the_store_with_the_folds_of_train(shared_built, collection):
    rows = xlarank.load_rows(shared_built, collection, "train")
    graphs = stored(shared_built, collection)
    keys = ["collection", "graph", "family", "split", "configuration", "repeats", "runtime_ns", "label"]
    columns = next(iter(graphs.values())).columns
    assert rows.columns == [*keys, "fold", "held_out", *columns]
    np.testing.assert_array_equal(
        rows[:, 10:].to_numpy(), np.concatenate([graph.matrix() for graph in graphs.values()])
    )
    assert rows["label"].to_list() == [cost for graph in graphs.values() for cost in graph.row_cost.tolist()]
    data = read_training_set(Workspace(shared_built), Collection.parse(collection)).data
    plan = FoldPlan.of(data)
    assert len(plan.folds) > 1
    for number, fold in enumerate(plan.folds):
        scored = rows.filter(pl.col("fold") == number)["graph"].unique()
        assert set(scored) == {data.names[graph] for graph in fold.scored}
        held = rows.filter(pl.col("held_out").list.contains(number))["graph"].unique()
        assert set(held) == {data.names[graph] for graph in fold.held}


def test_all_splits_some_columns_and_lazily(shared_built):
    column = FAST.columns("tile")[-1]
    rows = xlarank.load_rows(shared_built, TILE, columns=[column])
    assert rows.columns[10:] == [column] and set(rows["split"]) == {"train", "valid", "test"}
    assert rows.filter(pl.col("split") != "train")["fold"].null_count() == len(
        rows.filter(pl.col("split") != "train")
    )
    lazy = xlarank.load_rows(shared_built, TILE, columns=[column], lazy=True)
    assert isinstance(lazy, pl.LazyFrame) and lazy.collect().equals(rows)
    plain = (
        pl.scan_parquet(shared_built / "features" / "tile" / "**" / "*.parquet").select("graph", column).collect()
    )
    assert plain.sort(plain.columns).equals(rows.select("graph", column).sort(plain.columns))
    assert rows.to_pandas()["graph"].tolist() == rows["graph"].to_list()


def test_what_cannot_be_loaded(tree, built):
    for words, said in (
        ({}, f"no collection was named; expected {LAYOUT}, {TILE}"),
        ({"collection": "tile:cpus"}, "did you mean tile:cpu"),
        ({"collection": TILE, "split": "later"}, "'later' is not a split"),
    ):
        with pytest.raises(CollectionError, match=said):
            xlarank.load_rows(built, **words)
    with pytest.raises(FeatureStoreError, match="no column 'kernel__is_dot'; did you mean"):
        xlarank.load_rows(built, TILE, columns=["kernel__is_dot"])
    path = Workspace(built).rows(Collection.parse(TILE), "train", 0)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FeatureStoreError, match="run build-features again"):
        xlarank.load_rows(built, TILE)
    path.unlink()
    with pytest.raises(FeatureStoreError, match="run build-features again"):
        xlarank.load_rows(built, TILE, lazy=True)
    build(tree, built, collections=[TILE], splits=["train"], settings=FeatureSettings(Tier.FULL))
    with pytest.raises(FeatureStoreError, match="different columns"):
        xlarank.load_rows(built, TILE)
