"""Training on several collections: weights, and the commands that use such a model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pipelines.trees import LAYOUT, graph_path, stored
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError
from xlarank.data.workspace import Workspace
from xlarank.models.rankers.lambdarank import LambdaRank
from xlarank.models.ranking_data import RankingData
from xlarank.models.trained import TrainedModel, load_model
from xlarank.pipelines.calibrate import calibrate
from xlarank.pipelines.cross_validate import cross_validate
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.explain import explain
from xlarank.pipelines.rank import rank
from xlarank.pipelines.support.workspace_collections import weighted_collections
from xlarank.pipelines.train import train

ESTIMATE = "layout:tpu-estimate:random"


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[RankingData]:
    """What every booster was fitted on."""
    calls: list[RankingData] = []
    fit = LambdaRank.fit

    def spy(self: LambdaRank, data: RankingData, settings: Any) -> LambdaRank:
        calls.append(data)
        return fit(self, data, settings)

    monkeypatch.setattr(LambdaRank, "fit", spy)
    return calls


@pytest.fixture
def two(built: Path) -> Workspace:
    """A second collection with the same rows."""
    shutil.copytree(built / "features" / "layout/cpu/random", built / "features" / "layout/tpu-estimate/random")
    return Workspace(built)


def learn(place: Workspace, also: str, **options: Any) -> TrainedModel:
    train(place, collections=[LAYOUT], also_from=[also], threads=1, **{"seeds": 1, "rounds": 10, **options})
    return load_model(place.model(Collection.parse(LAYOUT)))


def test_the_card_tells_weights(two: Workspace, fits: list[RankingData]) -> None:
    card = learn(two, f"{ESTIMATE}=0.25").card
    assert card.also_weights == {ESTIMATE: 0.25}
    assert fits[-1].group_weight.tolist() == [1.0] * 5 + [0.25] * 5
    assert fits[-1].columns == card.columns
    card = learn(two, ESTIMATE).card
    assert card.also_weights == {ESTIMATE: 1.0} and fits[-1].weight is None


def test_such_a_model_is_used_like_any_other(two: Workspace, shared_tree: Path) -> None:
    model = learn(two, f"{ESTIMATE}=2", seeds=2)
    graph = stored(two.root)["alpha__a"]
    each = [ranker.predict(graph.matrix(), ranker.columns) for ranker in model.rankers]
    assert np.array_equal(model.score(graph).mean, np.mean(each, axis=0))
    path = graph_path(shared_tree, LAYOUT, "valid", "delta__a")
    ranking = rank(two, path, collection=LAYOUT)
    found = explain(two, path, collection=LAYOUT, config=3, against=9)
    assert found.difference == pytest.approx(ranking.scores[3] - ranking.scores[9])
    assert evaluate(two, collections=[LAYOUT]).report[LAYOUT]["tau"]["graphs"].keys() == {"delta__a", "delta__b"}
    assert cross_validate(two, collections=[LAYOUT], by="graph", threads=1).report[LAYOUT]


def test_calibrate_teaches_what_the_model_learned_from(two: Workspace, fits: list[RankingData]) -> None:
    learn(two, f"{ESTIMATE}=0.5", seeds=2)
    fits.clear()
    found, left_out = calibrate(two, collections=[LAYOUT], threads=1)
    assert not left_out and found[LAYOUT].graphs == 5, "only graphs of the own collection are judged"
    assert len(fits) == 2 * 3
    for fold in fits:  # two sources, each without the held-out family
        assert sorted(fold.names) == sorted(2 * sorted(set(fold.names)))
        assert len(set(fold.families)) == 2
        assert sorted(set(fold.group_weight)) == [0.5, 1.0]


def test_calibrate_where_the_other_collection_is_gone(two: Workspace) -> None:
    learn(two, ESTIMATE, seeds=2)
    shutil.rmtree(two.root / "features/layout/tpu-estimate")
    with pytest.raises(CollectionError, match=f"{ESTIMATE} has no train split"):
        calibrate(two, collections=[LAYOUT], threads=1)


def test_calibrate_where_the_other_collection_is_another(two: Workspace) -> None:
    learn(two, ESTIMATE, seeds=2)
    folder = two.model(Collection.parse(LAYOUT))
    text = folder.joinpath("model.json").read_text(encoding="utf-8")
    before, also, after = text.partition('"also_from"')
    folder.joinpath("model.json").write_text(before + also + after.replace("alpha__a", "alpha__z", 1), "utf-8")
    with pytest.raises(ModelError, match="are of other graphs than its model was trained on"):
        calibrate(two, collections=[LAYOUT], threads=1)


@pytest.mark.parametrize("weight", ["0", "-1", "half", "", "nan", "inf", "1001"])
def test_what_is_no_weight_is_refused_at_the_door(two: Workspace, weight: str) -> None:
    with pytest.raises(CollectionError, match=rf"weight of {ESTIMATE} is '{weight}'; expected a number"):
        learn(two, f"{ESTIMATE}={weight}")


def test_two_weights_of_one_collection_are_refused() -> None:
    with pytest.raises(CollectionError, match="layout:cpu:random is given two weights, 1 and 2"):
        weighted_collections(["layout:cpu:random", "layout:cpu:random=2"])


def test_an_unknown_collection_with_a_weight(two: Workspace) -> None:
    with pytest.raises(CollectionError, match=r"collection 'layout:tpu:random' is not in .*did you mean"):
        learn(two, "layout:tpu:random=0.5")
