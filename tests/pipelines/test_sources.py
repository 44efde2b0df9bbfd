"""Training on several collections: weights, and the commands that use such a model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.trees import LAYOUT, TREE, graph_path
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError
from xlarank.data.workspace import Workspace
from xlarank.models.rankers.wide_rows import LambdaRank
from xlarank.models.trained import TrainedModel, load_model
from xlarank.models.training_data import TrainingData
from xlarank.pipelines.calibrate import calibrate
from xlarank.pipelines.cross_validate import cross_validate
from xlarank.pipelines.rank import rank
from xlarank.pipelines.support.fitting import TrainRequest
from xlarank.pipelines.support.workspace_collections import weighted_collections
from xlarank.pipelines.train import train

ESTIMATE = "layout:tpu-estimate:random"


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[TrainingData]:
    """What every booster was fitted on."""
    calls: list[TrainingData] = []
    fit = LambdaRank.fit
    spy = lambda self, data, settings: calls.append(data) or fit(self, data, settings)  # noqa: E731
    monkeypatch.setattr(LambdaRank, "fit", spy)
    return calls


@pytest.fixture
def two(built: Path) -> Workspace:
    """A second collection with the same rows."""
    shutil.copytree(built / "features" / "layout/cpu/random", built / "features" / "layout/tpu-estimate/random")
    return Workspace(built)


def learn(place: Workspace, also: str, **options: Any) -> TrainedModel:
    given = {"seeds": 1, "rounds": 10, **options}
    train(place, TrainRequest(collections=[LAYOUT], also_from=[also], threads=1, **given))
    return load_model(place.model(Collection.parse(LAYOUT)))


def lacks_a_family(fold: TrainingData) -> bool:
    """Whether a fold of three families in two collections lacks one in both."""
    return sorted(fold.names) == sorted(2 * sorted(set(fold.names))) and len(set(fold.families)) == 2


def test_other_collections_are_learned_from_by_weight_and_not_judged_on(two, fits) -> None:
    card = learn(two, f"{ESTIMATE}=0.25", rounds=2).card
    *folds, whole = fits
    assert whole.group_weight.tolist() == [1.0] * 5 + [0.25] * 5
    assert whole.columns == card.columns
    assert all(map(lacks_a_family, folds))
    names = list(TREE[LAYOUT]["train"])
    assert (card.trained_on, card.also_from) == ({"train": names}, {ESTIMATE: names})
    assert card.also_weights == {ESTIMATE: 0.25}
    assert set(card.folds) == set(names)
    card = learn(two, ESTIMATE, rounds=2).card
    assert card.also_weights == {ESTIMATE: 1.0} and set(fits[-1].group_weight) == {1.0}


@pytest.mark.slow
def test_calibration_learns_from_what_the_model_learned_from_and_is_shown_by_rank(two, shared_tree, fits) -> None:
    folder, path = two.model(Collection.parse(LAYOUT)), graph_path(shared_tree, LAYOUT, "valid", "delta__a")
    learn(two, f"{ESTIMATE}=0.5", seeds=2)
    assert cross_validate(two, collections=[LAYOUT], by="graph").report[LAYOUT]
    assert rank(two, path, collection=LAYOUT).trust is None
    fits.clear()
    found, left_out = calibrate(two, collections=[LAYOUT], threads=1)
    assert not left_out and found[LAYOUT].graphs == 5, "only graphs of the collection itself are judged"
    assert (found[LAYOUT].seeds, found[LAYOUT].families) == (2, 3)
    assert len(fits) == 2 * 3
    assert all(lacks_a_family(fold) and set(fold.group_weight) == {0.5, 1.0} for fold in fits)
    ranking = rank(two, path, collection=LAYOUT)
    assert ranking.trust is not None
    assert ranking.trust.calibration.as_json() == found[LAYOUT].as_json()
    shown = json.loads(json.dumps(ranking.as_json()))["trust"]
    assert shown["best_among_first"] == ranking.trust.first and len(ranking.trust.lines()) == 2
    ahead = [entry.certainly_ahead_of for entry in ranking.best()]
    assert ahead == sorted(ahead, key=lambda count: -(count or 0)), "the better the rank, the more lie behind"

    text = folder.joinpath("model.json").read_text(encoding="utf-8")
    before, also, after = text.partition('"also_from"')
    folder.joinpath("model.json").write_text(before + also + after.replace("alpha__a", "alpha__z", 1), "utf-8")
    with pytest.raises(ModelError, match="are of other graphs than its model was trained on"):
        calibrate(two, collections=[LAYOUT], threads=1)
    assert learn(two, ESTIMATE, seeds=2, rounds=2).calibration is None, "that of another model is not used"
    shutil.rmtree(two.root / "features/layout/tpu-estimate")
    with pytest.raises(CollectionError, match=f"{ESTIMATE} has no train split"):
        calibrate(two, collections=[LAYOUT], threads=1)
    with pytest.raises(CollectionError, match="'layout:cpu:else' is not in the models of"):
        calibrate(two, collections=["layout:cpu:else"])
    shutil.rmtree(two.root / "models")
    with pytest.raises(ModelError, match="there is no trained model"):
        calibrate(two)


def test_weights_that_are_refused(two: Workspace) -> None:
    for weight in ("0", "-1", "half", "", "nan", "inf", "1001"):
        with pytest.raises(CollectionError, match=rf"weight of {ESTIMATE} is '{weight}'; expected a number"):
            learn(two, f"{ESTIMATE}={weight}")
    with pytest.raises(CollectionError, match="layout:cpu:random is given two weights, 1 and 2"):
        weighted_collections(["layout:cpu:random", "layout:cpu:random=2"])
    with pytest.raises(CollectionError, match=r"collection 'layout:tpu:random' is not in .*did you mean"):
        learn(two, "layout:tpu:random=0.5")
