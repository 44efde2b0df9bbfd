"""The final boosters: what they learn from, with which parameters, and what is kept about them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.graphs import save_npz
from tests.pipelines.trees import (
    LAYOUT,
    TILE,
    TREE,
    Listener,
    build,
    graph_path,
    layout_graph,
    parquet_bytes,
    stored,
    tile_graph,
    write_tree,
)
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError, WorkspaceError, XlarankError
from xlarank.data.workspace import Workspace
from xlarank.features.block import Tier
from xlarank.features.recipe import FeatureSettings
from xlarank.features.store import load_split
from xlarank.models.base import Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.rankers.lambdarank import LambdaRank, LambdaRankParams
from xlarank.models.ranking_data import RankingData, TrainingSet
from xlarank.models.registry import DEFAULT, RANKERS
from xlarank.models.trained import TrainedModel, load_model
from xlarank.models.validation.best_params import BestParams
from xlarank.models.validation.curves import Curves
from xlarank.models.validation.metrics import METRICS, kendall_tau, summarise
from xlarank.pipelines.support.fitting import TrainResult
from xlarank.pipelines.support.training_sets import read_training_set
from xlarank.pipelines.train import train


def run(workspace: Path, **options: Any) -> list[TrainResult]:
    """One seed, few rounds, one thread; the tile collection alone by default, whose few rows may be too few."""
    chosen = {"collections": [TILE], "seeds": 1, "rounds": 10, "threads": 1, "allow_constant": True, **options}
    return train(Workspace(workspace), **chosen)


def model_of(workspace: Path, collection: str = TILE) -> TrainedModel:
    return load_model(Workspace(workspace).model(Collection.parse(collection)))


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What every booster was fitted on."""
    calls: list[dict[str, Any]] = []
    fit = LambdaRank.fit

    def spy(self: LambdaRank, data: RankingData, settings: FitSettings) -> LambdaRank:
        calls.append({"data": data, "params": self.params.values(), **asdict(settings)})
        return fit(self, data, settings)

    monkeypatch.setattr(LambdaRank, "fit", spy)
    return calls


def save_best(workspace: Path, collection: str = TILE, **changes: Any) -> None:
    values: dict[str, Any] = {
        "model": "lambdarank", "params": {"learning_rate": 0.125, "labels": "log"}, "rounds": 7, "mean": 0.5,
        "std": 0.1, "select": "mean", "graphs": {}, "trial": 0, "folds": [], "code_hash": "",
    }  # fmt: skip
    BestParams(**{**values, **changes}).save(Workspace(workspace).study(Collection.parse(collection)))


# What is trained -------------------------------------------------------------------------------------------


def test_every_collection_gets_a_model_that_tells_what_it_is(built: Path) -> None:
    layout, tile = run(built, collections=[], rounds=30)
    assert (layout.collection, tile.collection) == (LAYOUT, TILE)
    assert (layout.graphs, layout.families, layout.rows) == (5, 3, 5 * 22)
    assert (tile.graphs, tile.families, tile.rows, tile.seeds, tile.skipped) == (4, 3, 4 * 23, 1, "")
    for result in (layout, tile):
        model = model_of(built, result.collection)
        card = model.card
        assert (card.collection, card.model, card.tuned) == (result.collection, "lambdarank", False)
        assert card.params == LambdaRankParams.of(card.kind).values()
        assert card.rounds == result.rounds
        assert card.trained_on == {"train": list(TREE[result.collection]["train"])}
        graph = next(iter(stored(built, result.collection).values()))
        assert card.columns == graph.columns
        assert np.isfinite(model.score(graph).mean).all()


def test_several_seeds_are_fitted_and_averaged(built: Path, fits: list[dict[str, Any]]) -> None:
    (result,) = run(built, collections=[LAYOUT], seeds=3, seed=5, rounds=30)
    whole = [fit for fit in fits if fit["data"].groups == 5]
    assert [fit["seed"] for fit in whole] == [5, 6, 7]
    assert {fit["rounds"] for fit in whole} == {result.rounds}
    assert result.seeds == 3
    model = model_of(built, LAYOUT)
    assert len(model.rankers) == 3
    graph = stored(built)["alpha__a"]
    each = [ranker.predict(graph.matrix(), graph.columns, graph.instances) for ranker in model.rankers]
    assert not np.array_equal(each[0], each[1])
    assert np.array_equal(model.score(graph).mean, np.mean(each, axis=0))


def test_a_model_ranks_families_it_never_saw(trained: Path) -> None:
    """The made-up runtimes are easy: what is learned on alpha, beta and gamma holds for delta."""
    model = model_of(trained, LAYOUT)
    for graph in stored(trained, LAYOUT, "valid").values():
        assert kendall_tau(model.score(graph).mean, graph.row_cost) > 0.6


@pytest.mark.parametrize("model", sorted(set(RANKERS) - {DEFAULT}))
def test_every_ranker_is_trained_saved_and_ranks_families_it_never_saw(built: Path, model: str) -> None:
    for result in train(Workspace(built), model=model, seeds=1, rounds=30, threads=1):
        assert (result.model, result.skipped) == (model, "")
    for graph in stored(built, LAYOUT, "valid").values():
        scores = model_of(built, LAYOUT).score(graph).mean
        assert kendall_tau(scores, graph.row_cost) > 0.6


def test_same_seed_same_boosters(built: Path) -> None:
    def boosters() -> list[bytes]:
        run(built, seeds=2)
        return [path.read_bytes() for path in sorted(built.glob("models/**/booster.txt"))]

    assert boosters() == boosters()


def test_training_again_replaces_the_model(built: Path) -> None:
    run(built, seeds=2)
    run(built, seeds=1)
    assert len(model_of(built).rankers) == 1
    assert len(list(built.glob("models/**/booster.txt"))) == 1


def test_features_are_only_read(built: Path) -> None:
    before = parquet_bytes(built)
    run(built)
    assert parquet_bytes(built) == before


# Folds ----------------------------------------------------------------------------------------------------


def test_out_of_fold_scores_are_kept_in_the_model(built: Path, fits: list[dict[str, Any]]) -> None:
    (result,) = run(built, collections=[LAYOUT], rounds=30)
    card = model_of(built, LAYOUT).card
    assert set(card.folds) == set(TREE[LAYOUT]["train"])
    assert all(tuple(values) == METRICS for values in card.folds.values())
    assert result.folds == summarise(card.folds)
    assert result.folds["score"]["mean"] > 0.3
    assert result.chosen_by == "3 folds by family"
    assert result.rounds in (25, 30)
    assert json.loads((built / "models" / "layout" / "cpu" / "random" / "model.json").read_text())["folds"]
    families = [set(fit["data"].families) for fit in fits]
    assert sorted(map(sorted, families)) == [
        ["alpha", "beta"], ["alpha", "beta", "gamma"], ["alpha", "gamma"], ["beta", "gamma"],
    ]  # fmt: skip


def test_the_number_of_rounds_is_the_best_of_the_folds(
    built: Path, fits: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def peak(training: TrainingSet, held: list[int], ranker: Ranker[Any], settings: FitSettings) -> Curves:
        stages = [dict.fromkeys(METRICS, value) for value in (0.0, 0.25, 0.5, 0.25, 0.0)]
        return Curves([25, 50, 75, 100, settings.rounds], {training.data.names[g]: stages for g in held})

    monkeypatch.setattr("xlarank.models.validation.curves.validate_fold", peak)
    (result,) = run(built, rounds=110)
    assert result.rounds == model_of(built).card.rounds == 75
    assert result.folds["tau"]["mean"] == 0.5
    assert [fit["rounds"] for fit in fits] == [75]


def test_rounds_can_be_chosen_for_an_even_ranking(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Conv gains on and on while the others lose: the mean grows, and so does the spread."""

    def apart(training: TrainingSet, held: list[int], ranker: Ranker[Any], settings: FitSettings) -> Curves:
        names = training.data.names
        step = {"conv": (0.5, 0.6, 0.7), "dot": (0.5, 0.42, 0.34), "tanh": (0.5, 0.42, 0.34)}
        stages = {name: [dict.fromkeys(METRICS, v) for v in step[name.split("__")[0]]] for name in names}
        return Curves([25, 50, settings.rounds], {names[g]: stages[names[g]] for g in held})

    monkeypatch.setattr("xlarank.models.validation.curves.validate_fold", apart)
    (mean,), (robust,) = run(built, rounds=60), run(built, rounds=60, select="robust")
    assert (mean.rounds, robust.rounds) == (60, 25)
    assert model_of(built).card.select == "robust"


def test_more_families_than_ten_are_dealt_into_ten_folds(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree", {TILE: {"train": [f"family{letter}__a" for letter in "abcdefghijkl"]}})
    build(tmp_path / "tree", tmp_path / "work")
    (result,) = run(tmp_path / "work", rounds=2)
    assert (result.families, result.chosen_by) == (12, "10 folds by family")
    assert len(model_of(tmp_path / "work").card.folds) == 12


def test_one_family_trains_without_folds(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree", {TILE: {"train": ("conv__a", "conv__b")}})
    build(tmp_path / "tree", tmp_path / "work")
    (result,) = run(tmp_path / "work", rounds=12)
    assert (result.rounds, result.folds) == (12, {})
    assert "one family" in result.chosen_by
    assert model_of(tmp_path / "work").card.folds == {}


# Parameters -----------------------------------------------------------------------------------------------


def test_tuned_parameters_are_used_in_folds_and_boosters(built: Path, fits: list[dict[str, Any]]) -> None:
    save_best(built)
    (result,) = run(built)
    wanted = LambdaRankParams.of("tile", {"learning_rate": 0.125, "labels": "log"}).values()
    assert all(fit["params"] == wanted for fit in fits)
    assert len(fits) == 4
    assert result.tuned
    card = model_of(built).card
    assert (card.tuned, card.params) == (True, wanted)


def test_parameters_of_another_collection_are_not_used(built: Path, fits: list[dict[str, Any]]) -> None:
    save_best(built, LAYOUT)
    (result,) = run(built)
    assert not result.tuned
    assert fits[0]["params"] == LambdaRankParams.of("tile").values()


def test_a_damaged_study_is_named(built: Path) -> None:
    folder = Workspace(built).study(Collection.parse(TILE))
    folder.mkdir(parents=True)
    (folder / "best-lambdarank.json").write_text("{")
    with pytest.raises(XlarankError, match=r"best-lambdarank\.json cannot be read"):
        run(built)


# The ranker of the best score ------------------------------------------------------------------------------


def scored(scores: dict[str, float]) -> Callable[..., Curves]:
    """A stand-in for `validate_fold`: a score for each ranker, a little apart from graph to graph."""

    def validate(training: TrainingSet, held: list[int], ranker: Ranker[Any], settings: FitSettings) -> Curves:
        names = training.data.names
        found = {names[g]: [dict.fromkeys(METRICS, scores[ranker.name] + g / 100)] for g in held}
        return Curves([settings.rounds], found)

    return validate


def test_auto_trains_the_ranker_of_the_best_score_and_says_why(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = {**dict.fromkeys(RANKERS, 0.1), "pair-vote": 0.4, "ranknet": 0.3}
    monkeypatch.setattr("xlarank.models.validation.curves.validate_fold", scored(scores))
    save_best(built, model="ranknet", params={"pairs": 3})
    listener = Listener()
    (result,) = run(built, model="auto", progress=listener)
    assert (result.model, result.tuned) == ("pair-vote", False)
    assert result.why.startswith("pair-vote 0.415, ranknet (tuned) 0.315, lambdarank 0.115, ")
    apart = "+0.100 (+0.100 to +0.100)"  # the stand-in gives every metric the same number
    assert result.why.endswith(
        " out of fold; pair-vote leads by 0.100 ± 0.000, less that of ranknet: "
        f"slowdown@1 {apart} and slowdown@5 {apart}"
    )
    assert model_of(built).card.model == "pair-vote"
    assert listener.jobs == [(f"training {TILE}", 3 * len(RANKERS) + 1)]
    assert len(listener.notes) == 3 * len(RANKERS) + 1
    assert listener.notes[0].startswith("lambdarank, held out ")


def test_auto_uses_tuned_parameters(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "xlarank.models.validation.curves.validate_fold", scored({**dict.fromkeys(RANKERS, 0.1), "ranknet": 0.3})
    )
    save_best(built, model="ranknet", params={"pairs": 3})
    (result,) = run(built, model="auto")
    assert (result.model, result.tuned, model_of(built).card.params["pairs"]) == ("ranknet", True, 3)


def test_auto_chooses_for_each_collection(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_kind(training: TrainingSet, *rest: Any) -> Curves:
        best = "pair-vote" if training.kind == "tile" else "ranknet"
        return scored({**dict.fromkeys(RANKERS, 0.1), best: 0.2})(training, *rest)

    monkeypatch.setattr("xlarank.models.validation.curves.validate_fold", by_kind)
    assert [result.model for result in run(built, collections=[], model="auto")] == ["ranknet", "pair-vote"]


def test_of_equals_auto_takes_the_default(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xlarank.models.validation.curves.validate_fold", scored(dict.fromkeys(RANKERS, 0.1)))
    assert run(built, model="auto")[0].model == DEFAULT


def test_auto_passes_over_what_cannot_run(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = scored({**dict.fromkeys(RANKERS, 0.1), "pair-vote": 0.4})

    def without_xgboost(training: TrainingSet, held: list[int], ranker: Ranker[Any], *rest: Any) -> Curves:
        if ranker.name in ("xgb-pairwise", "ensemble"):
            raise ModelError("it needs xgboost", do="install it")
        return scores(training, held, ranker, *rest)

    monkeypatch.setattr("xlarank.models.validation.curves.validate_fold", without_xgboost)
    (result,) = run(built, model="auto")
    assert result.model == "pair-vote"
    assert "xgb-pairwise is passed over: it needs xgboost; ensemble is passed over" in result.why
    with pytest.raises(ModelError, match="it needs xgboost"):
        run(built, model="xgb-pairwise")


def test_auto_with_one_family_is_the_default(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree", {TILE: {"train": ("conv__a", "conv__b")}})
    build(tmp_path / "tree", tmp_path / "work")
    (result,) = run(tmp_path / "work", model="auto", rounds=3)
    assert result.model == DEFAULT
    assert "one program family" in result.why


# With the valid split -------------------------------------------------------------------------------------


def test_with_valid_learns_from_both_splits(built: Path, fits: list[dict[str, Any]]) -> None:
    (result,) = run(built, collections=[LAYOUT], with_valid=True)
    names = [*TREE[LAYOUT]["train"], *TREE[LAYOUT]["valid"]]
    assert (result.graphs, result.families) == (7, 4)
    assert fits[-1]["data"].names == names
    splits = {split: list(TREE[LAYOUT][split]) for split in ("train", "valid")}
    assert model_of(built, LAYOUT).card.trained_on == splits
    assert set(model_of(built, LAYOUT).card.folds) == set(names)


def test_a_valid_graph_gives_no_more_rows_than_a_train_graph(tree: Path, built: Path) -> None:
    build(tree, built, max_configs=9)
    data = read_training_set(Workspace(built), Collection.parse(LAYOUT), ("train", "valid")).data
    assert np.diff(data.indptr).max() == 9
    stored = {graph.name: graph for graph in load_split(Workspace(built), Collection.parse(LAYOUT), "valid")}
    assert min(len(graph) for graph in stored.values()) > 9, "they are stored whole"
    for graph in data.parts:
        if graph.name in stored:
            whole = stored[graph.name]
            rows = [int(np.flatnonzero((whole.config_values == row).all(axis=1))[0]) for row in graph.config_values]
            assert rows == sorted(set(rows))
            assert graph.row_cost.tolist() == whole.row_cost[rows].tolist()
            assert set(graph.ids) == {i for i, row in zip(whole.ids, whole.group, strict=True) if row in rows}


def test_without_it_valid_is_never_seen(built: Path, fits: list[dict[str, Any]]) -> None:
    run(built, collections=[LAYOUT])
    assert all(name not in fit["data"].names for fit in fits for name in TREE[LAYOUT]["valid"])


def test_valid_of_other_columns_is_refused(tree: Path, built: Path) -> None:
    build(tree, built, splits=["valid"], settings=FeatureSettings(Tier.FAST, candidates=False))
    with pytest.raises(CollectionError, match=r"built by different feature code or settings.*build-features again"):
        run(built, with_valid=True)
    run(built)


def test_with_valid_where_there_is_none(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree", {TILE: {"train": ("conv__a", "dot__a")}})
    build(tmp_path / "tree", tmp_path / "work")
    (result,) = run(tmp_path / "work", with_valid=True)
    assert result.graphs == 2


# What cannot be trained -----------------------------------------------------------------------------------


def _nothing_to_rank(root: Path) -> None:
    for number, name in enumerate(("conv__a", "dot__a")):
        graph = tile_graph(number)
        graph["config_feat"][:] = graph["config_feat"][0]
        save_npz(graph_path(root, TILE, "train", name), graph)


def _withheld(root: Path) -> None:
    save_npz(graph_path(root, TILE, "train", "conv__a"), tile_graph(0, labelled=False))


def _broken(root: Path) -> None:
    path = graph_path(root, TILE, "train", "conv__a")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no zip")


def _valid_alone(root: Path) -> None:
    save_npz(graph_path(root, TILE, "valid", "pool__a"), tile_graph(0))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_nothing_to_rank, r"tile:cpu has 2 graphs in train, none of which can be learned from"),
        (_withheld, r"tile:cpu has 1 graph in train, none of which can be learned from"),
        (_broken, r"tile:cpu has no train split"),
        (_valid_alone, r"tile:cpu has no train split"),
    ],
)
def test_a_collection_that_cannot_be_learned_from(tmp_path: Path, make: Callable[[Path], None], said: str) -> None:
    """An error where it was asked for by name, a reason where everything was."""
    root, work = tmp_path / "tree", tmp_path / "work"
    make(root)
    build(root, work)
    for asked in ([TILE], []):
        with pytest.raises(CollectionError, match=said):
            run(work, collections=asked)
    for number, name in enumerate(("alpha__a", "beta__a")):
        save_npz(graph_path(root, LAYOUT, "train", name), layout_graph(number))
    build(root, work)
    layout, tile = run(work, collections=[])
    assert (layout.graphs, layout.skipped) == (2, "")
    assert said.split(", none")[0] in tile.skipped
    assert (tile.collection, tile.graphs, tile.folds) == (TILE, 0, {})
    assert not (work / "models" / "tile").exists()


def test_an_unrankable_graph_among_others_is_passed_over(tree: Path, built: Path) -> None:
    even = tile_graph(60)
    even["config_runtime"] = even["config_runtime_normalizers"] * 3
    save_npz(graph_path(tree, TILE, "train", "even__a"), even)
    build(tree, built)
    (result,) = run(built)
    assert result.graphs == 4
    assert model_of(built).card.trained_on == {"train": list(TREE[TILE]["train"])}


def test_bad_requests(built: Path, tmp_path: Path) -> None:
    with pytest.raises(XlarankError, match="--seeds is 0"):
        run(built, seeds=0)
    with pytest.raises(XlarankError, match="--rounds is 0"):
        run(built, rounds=0)
    with pytest.raises(ModelError, match="'forest' is not a model"):
        run(built, model="forest")
    with pytest.raises(ModelError, match="select is 'median'; expected mean, robust"):
        run(built, select="median")
    with pytest.raises(CollectionError, match="did you mean tile:cpu"):
        run(built, collections=["tile:cpv"])
    with pytest.raises(CollectionError, match="holds no collections"):
        run(tmp_path / "empty")
    (built / "models").write_text("in the way")
    with pytest.raises(WorkspaceError, match=r"cannot write .*models"):
        run(built)


# A model that learned nothing ------------------------------------------------------------------------------


def test_a_model_that_learned_nothing_does_not_replace_the_one_there_is(trained: Path) -> None:
    card = trained / "models" / "layout" / "cpu" / "random" / "model.json"
    before = card.read_bytes()
    save_best(trained, LAYOUT, params={"min_data_in_leaf": 5000})
    with pytest.raises(ModelError, match=r"no tree has a split: .* rows are too few .* all scores are equal.*tune"):
        run(trained, collections=[LAYOUT], allow_constant=False)
    assert card.read_bytes() == before
    (result,) = run(trained, collections=[LAYOUT])
    assert "no tree has a split" in result.note and card.read_bytes() != before


# Progress and interruptions -------------------------------------------------------------------------------


def test_progress_counts_folds_and_seeds(built: Path) -> None:
    listener = Listener()
    run(built, seeds=2, progress=listener)
    assert listener.jobs == [(f"training {TILE}", 3 + 2)]
    assert len(listener.notes) == 5
    assert listener.notes[0].startswith("held out ")
    assert listener.ended == 1


@pytest.mark.parametrize("step", [1, 4])
def test_an_interruption_keeps_the_model_there_was(trained: Path, step: int) -> None:
    """Step 1 is the first fold, step 4 the first booster."""
    before = (trained / "models" / "tile" / "cpu" / "model.json").read_bytes()
    listener = Listener(stop_at=step)
    with pytest.raises(KeyboardInterrupt):
        run(trained, seeds=2, progress=listener)
    assert listener.ended == 1
    assert (trained / "models" / "tile" / "cpu" / "model.json").read_bytes() == before
    assert len(model_of(trained).rankers) == 2


def test_damaged_rows_are_named(built: Path) -> None:
    path = Workspace(built).graph_rows(Collection.parse(TILE), "train", "conv__a")
    path.write_bytes(b"PAR1")
    with pytest.raises(XlarankError, match=r"conv__a\.parquet cannot be read.*build-features again"):
        run(built)


# Several collections ---------------------------------------------------------------------------------------


def test_other_collections_are_learned_from_and_not_judged_on(built: Path, fits: list[dict[str, Any]]) -> None:
    other = "layout:cpu:default"
    shutil.copytree(built / "features" / "layout/cpu/random", built / "features" / "layout/cpu/default")
    (result,) = run(built, collections=[LAYOUT], also_from=[other, LAYOUT], rounds=5)
    assert result.graphs == 10 and result.rows == 2 * 5 * 22
    card = model_of(built, LAYOUT).card
    assert card.trained_on == {"train": list(TREE[LAYOUT]["train"])}
    assert card.also_from == {other: list(TREE[LAYOUT]["train"])}
    assert set(card.folds) == set(TREE[LAYOUT]["train"])
    *folds, whole = fits
    assert whole["data"].groups == 10
    for fold in folds:  # the same programs, so a fold lacks its family twice
        names = fold["data"].names
        assert sorted(names) == sorted([*set(names), *set(names)])


def test_a_collection_of_the_other_kind_is_refused(built: Path) -> None:
    with pytest.raises(CollectionError, match=f"{LAYOUT} cannot also learn from {TILE}; expected a layout"):
        run(built, collections=[LAYOUT], also_from=[TILE], rounds=5)
