"""Scores of configurations from files and frames, and stored rows."""

import shutil

import numpy as np
import polars as pl
import pytest

import xlarank
from tests.pipelines import trees
from tests.pipelines.trees import LAYOUT, TILE, TREE, build, graph_path, stored
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, FeatureStoreError, ModelError, XlarankError
from xlarank.data.workspace import Workspace
from xlarank.features.catalogue import all_columns
from xlarank.models.validation.folds import FoldPlan
from xlarank.pipelines.cross_validate import cross_validate
from xlarank.pipelines.submit import submit
from xlarank.pipelines.support.evaluation import compared
from xlarank.pipelines.support.score_files import Scores
from xlarank.pipelines.training.training_sets import read_training_set


def scores_of(workspace, split="test", **changed):
    """Return scores of the distinct configurations of layout graphs, equal to their numbers."""
    tables = []
    for name, graph in stored(workspace, LAYOUT, split).items():
        first = graph.ids[np.unique(graph.group, return_index=True)[1]]
        columns = {"graph": name, "configuration": first, "score": first.astype(float)}
        tables.append(pl.DataFrame(columns))
    return pl.concat(tables).with_columns(**changed)


def submitted(workspace, out, paths, **options):
    return submit(out / "out.csv", workspace, scores=paths, **options)


def test_columns_of_other_types_and_names(shared_built, tmp_path):
    path = tmp_path / "scores.parquet"
    right = scores_of(shared_built)
    for columns in ({"row": 1}, {"split": pl.lit("test", pl.Categorical)}):
        right.with_columns(**columns).write_parquet(path)
        assert submitted(shared_built, tmp_path, path).rows
    five = tmp_path / "five.csv"
    right.with_columns(collection=pl.lit(LAYOUT), more=0).write_csv(five)
    assert Scores.read(five, "test").table.width == 5
    assert submitted(shared_built, tmp_path, five).rows
    five.write_text("graph,configuration,score\n007,0,1.5\n")
    assert Scores.read(five, "test").table["graph"].to_list() == ["007"]
    for columns in ({"split": pl.concat_list("score")}, {"split": 3}, {"collection": 3}):
        right.with_columns(**columns).write_parquet(path)
        with pytest.raises(XlarankError):
            submitted(shared_built, tmp_path, path)


def test_scores_are_submitted(shared_built, tmp_path):
    first = tmp_path / "one.parquet"
    second = tmp_path / "two.csv"
    scores_of(shared_built).write_parquet(first)
    scores_of(shared_built, score=-1000.0 * pl.col("configuration")).write_csv(second)
    names = [f"{LAYOUT}:{name}" for name in TREE[LAYOUT]["test"]]
    for scores, best in (
        (second, 21),
        (scores_of(shared_built, score=-1.0 * pl.col("configuration")), 21),
        (scores_of(shared_built).to_pandas(), 0),
        (first, 0),
    ):
        report = submitted(shared_built, tmp_path, scores)
        assert report.rows == {LAYOUT: 2, TILE: 2} and not report.unranked
        orders = trees.read_submission(report.out)
        assert [orders[name][0] for name in names] == [best, best]
    assert orders[names[0]][:3] == [0, 22, 23], "repeats have the score of the first"


def test_graphs_without_scores_are_ranked_by_the_winner_and_named(trained, tmp_path):
    """Only layouts have scores; tiles have the order that they get without scores."""
    path = tmp_path / "scores.parquet"
    scores_of(trained).write_parquet(path)
    plain = submit(tmp_path / "plain.csv", trained)
    report = submitted(trained, tmp_path, path)
    assert report.rows == plain.rows and not (report.unranked or report.left_out)
    assert report.ranked_by == {LAYOUT: str(path), TILE: plain.ranked_by[TILE]}
    orders, expected = (trees.read_submission(tmp_path / name) for name in ("out.csv", "plain.csv"))
    tiles = [row_id for row_id in expected if row_id.startswith(TILE)]
    assert [orders[row_id] for row_id in tiles] == [expected[row_id] for row_id in tiles]
    first = TREE[LAYOUT]["test"][0]
    scores_of(trained).filter(graph=first).write_parquet(path)
    report = submitted(trained, tmp_path, path)
    assert plain.ranked_by[LAYOUT].startswith(report.ranked_by[LAYOUT].removeprefix(f"{path} and "))


def test_the_first_wrong_row_is_named(shared_built, tmp_path):
    path = tmp_path / "scores.csv"
    right = scores_of(shared_built)

    def changed(row, column, value):
        is_row = pl.int_range(pl.len()) == row
        new = pl.when(is_row).then(pl.lit(value)).otherwise(column)
        return right.with_columns(new.alias(column))

    def number(value):
        return changed(5, "configuration", value)

    known = "expected configurations 0 to 23"
    graphs = f"test graphs of {LAYOUT}, {TILE}"
    for wrong, message in (
        (right.drop("score"), "cannot be read .it has no column score.; expected parquet or csv"),
        (right.with_columns(score=pl.lit("fast")), "cannot be read"),
        (changed(7, "score", None), "row 8 of .*scores.csv gives conf.* the score None"),
        (changed(3, "graph", "a"), f"row 4 of .*csv scores 'a'; expected {graphs}"),
        (number(24), f"row 6 .* configuration 24 of omega__a; {known}"),
        (number(0.9), "row 6 .*csv gives configuration 0.9 of "),
        (number(1e300), "row 6 .*csv gives configuration 1e.300 of "),
        (number(float("nan")), "row 6 .*csv gives configuration nan of "),
        (number("2024-01-01"), "scores.csv cannot be read .*2024-01-01"),
        (number("true"), "scores.csv cannot be read .*true"),
        (right[:-1], "csv has no score of configuration .* of omega__b; expected one of"),
        (pl.concat([right, right[3:]]), "row 45 of .* scores configuration 3 of omega__a again"),
        (right[1:], "no score of configuration 0 of omega__a; .* or of a configuration ident"),
    ):
        wrong.write_csv(path)
        with pytest.raises(XlarankError, match=message):
            submitted(shared_built, tmp_path, path)
        assert not (tmp_path / "out.csv").exists()
    for wrong in (tmp_path, [right]):
        with pytest.raises(XlarankError, match="cannot be read"):
            Scores.read(wrong, "test")


@pytest.mark.parametrize("collection", [LAYOUT, TILE])
def test_rows_are_those_of_the_store_with_the_folds_of_train(shared_built, collection):
    rows = xlarank.load_rows(shared_built, collection, "train")
    graphs = stored(shared_built, collection)
    keys = "collection graph family split configuration repeats runtime_ns label fold held_out"
    assert rows.columns == [*keys.split(), *graphs[rows["graph"][0]].columns]
    matrix = np.concatenate([graph.matrix() for graph in graphs.values()])
    np.testing.assert_array_equal(rows[:, 10:].to_numpy(), matrix)
    costs = np.concatenate([graph.row_cost for graph in graphs.values()])
    assert rows["label"].to_list() == costs.tolist()
    data = read_training_set(Workspace(shared_built), Collection.parse(collection)).data
    folds = FoldPlan.of(data).folds
    assert len(folds) > 1
    for number, fold in enumerate(folds):
        scored = pl.col("fold") == number
        held = pl.col("held_out").list.contains(number)
        for groups, selected in ((fold.scored, scored), (fold.held, held)):
            assert {*rows.filter(selected)["graph"]} == {data.names[group] for group in groups}


def test_all_splits_some_columns(shared_built):
    column = all_columns("tile")[-1]
    rows = xlarank.load_rows(shared_built, TILE, columns=[column])
    assert rows.columns[10:] == [column] and set(rows["split"]) == {"train", "valid", "test"}
    others = rows.filter(pl.col("split") != "train")
    assert others["fold"].null_count() == len(others)
    plain = pl.read_parquet(shared_built / "features/tile/**/*.parquet", columns=["graph", column])
    assert plain.sort(plain.columns).equals(rows.select("graph", column).sort(plain.columns))
    assert rows.to_pandas()["graph"].tolist() == rows["graph"].to_list()


def test_rows_that_cannot_be_loaded_are_refused(tree, built):
    def refused(error, message, *arguments, **options):
        with pytest.raises(error, match=message):
            xlarank.load_rows(built, *arguments, **options)

    def rebuild(**options):
        build(tree, built, collection=[TILE], split=["train"], **options)

    shutil.rmtree(built / "features/tile/cpu/valid")
    no_valid = "tile:cpu has no rows of valid in .*; pass another split"
    refused(CollectionError, f"no collection was named; expected {LAYOUT}, {TILE}")
    refused(CollectionError, "did you mean tile:cpu", "tile:cpus")
    refused(CollectionError, "'later' is not a split", TILE, "later")
    refused(CollectionError, no_valid, TILE, "valid")
    no_column = "no column 'kernel__is_dot'; did"
    refused(FeatureStoreError, no_column, TILE, columns=["kernel__is_dot"])
    again = "run build-features again"
    path = Workspace(built).rows(Collection.parse(TILE), "train", 0)
    manifest = path.with_name("manifest.json")
    before = manifest.read_bytes()
    trees.graph_path(tree, TILE, "train", TREE[TILE]["train"][0]).unlink()
    rebuild()
    manifest.write_bytes(before)  # as a killed build leaves it
    refused(FeatureStoreError, again, TILE)
    rebuild()
    path.write_bytes(path.read_bytes()[:-9])
    refused(FeatureStoreError, again, TILE)
    path.unlink()
    refused(FeatureStoreError, again, TILE)


def test_a_rule_without_scores_of_all_graphs_does_not_narrow_the_comparison():
    def scored(**scores):
        zeros = {"slowdown@1": 0.0, "slowdown@5": 0.0}
        return {graph: {"score": score, **zeros} for graph, score in scores.items()}

    rankings = {
        "lambdarank": scored(a=0.5, b=0.7),
        "rule: file order": scored(a=0.75, b=0.75, c=0.0),
        "rule: nearest to the first configuration": scored(a=1.0),
        "estimated time": scored(c=1.0),
    }
    first, second = compared(rankings)
    assert (first["ranker"], first["graphs"], first["difference"]) == ("lambdarank", 2, None)
    assert second["score"]["mean"] == 0.75, "graph c is not compared"
    assert second["difference"]["mean"] == pytest.approx(0.15)
    assert compared({"a": scored(a=1.0), "b": scored(b=1.0)}) == []


def test_frames_are_cross_validated_fitted_and_predicted_like_stored_rows(shared_built, tmp_path):
    """Kernels without repeats: the scores are those of cross-validate, to the last bit."""
    rows = xlarank.load_rows(shared_built, TILE)
    ranker = xlarank.GraphRanker("ranknet", n_estimators=30, n_jobs=1)
    before = xlarank.cross_validate(rows, ranker)
    expected = cross_validate(shared_built, "ranknet", rounds=30, threads=1, collection=TILE)
    assert before.scores == expected.report[TILE]["score"]["graphs"]
    assert before.to_polars().columns[:2] == ["graph", "tau"] and "out of fold" in repr(before)
    answer = rows.with_columns(mine__answer__log=pl.col("label").log().fill_null(0.0))
    after = xlarank.cross_validate(answer.to_pandas(), ranker)
    gain, error = after.gain_over(before)
    assert gain != 0 and error > 0
    train = answer.filter(pl.col("split") == "train")
    shuffled = answer.sample(fraction=1, shuffle=True, seed=0)
    scored = shuffled.with_columns(score=ranker.fit(train).predict(shuffled))
    assert ranker.feature_names_in_[-1] == "mine__answer__log"
    again = answer.with_columns(score=ranker.predict(answer.to_pandas()))
    keys = ["graph", "configuration"]
    assert again.sort(keys)["score"].to_list() == scored.sort(keys)["score"].to_list()
    report = xlarank.submit(tmp_path / "out.csv", shared_built, collection=TILE, scores=scored)
    assert report.ranked_by == {TILE: "the frame of scores"}
    with pytest.raises(ModelError, match=r"lack 1 \(mine__answer__log"):
        ranker.predict(rows)


def test_a_ranker_fitted_on_a_frame_prices_the_copies_of_a_graph_as_its_rows(
    shared_tree, shared_built
):
    rows = xlarank.load_rows(shared_built, LAYOUT)
    graph = rows.filter(pl.col("graph") == "delta__a")
    for target in (None, "tpu-v4"):
        ranker = xlarank.GraphRanker("ranknet", n_estimators=5, n_jobs=1, target=target).fit(rows)
        scores = ranker.predict(graph_path(shared_tree, LAYOUT, "valid", "delta__a"))
        assert scores[graph["configuration"]].tolist() == ranker.predict(graph).tolist()
        assert ranker.target_ == (target or "cpu")


def test_frames_that_are_refused(shared_built):
    rows = xlarank.load_rows(shared_built, TILE, "train")
    layouts = xlarank.load_rows(shared_built, LAYOUT, "train")
    for frame, message in (
        (rows.drop("graph"), "has no column graph; expected rows as xlarank.load_rows"),
        (rows.with_columns(note=pl.lit("x")), "the column note of the frame is of type String"),
        (
            pl.concat([rows, layouts], how="diagonal"),
            "the frame is of .*, .*; expected rows of one",
        ),
        (rows[:0], "the frame is of no rows"),
        (rows.with_columns(label=None, runtime_ns=None), "none of .* can be trained on"),
    ):
        with pytest.raises(ModelError, match=message):
            xlarank.cross_validate(frame)
