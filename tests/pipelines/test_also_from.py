"""Training on graphs of other collections, too."""

import shutil

import pytest

from tests.pipelines import trees
from tests.pipelines.trees import LAYOUT, TREE, model_of
from xlarank.data.errors import CollectionError
from xlarank.data.workspace import Workspace
from xlarank.pipelines.training.training_sets import extra_collections

OTHER = "layout:tpu-estimate:random"


@pytest.fixture
def pair(built):
    """A workspace with two collections of the same layout graphs."""
    features = built / "features/layout"
    shutil.copytree(features / "cpu/random", features / "tpu-estimate/random")
    return Workspace(built)


def learn(place, also, **options):
    chosen = {"collections": [LAYOUT], "also_from": [also], "rounds": 10, **options}
    trees.train_models(place.root, **chosen)
    return model_of(place.root)


def lacks_a_family(fold):
    """Return whether a fold of three families in two collections lacks one in both."""
    are_twice = sorted(fold.names) == sorted(2 * sorted(set(fold.names)))
    return are_twice and len(set(fold.families)) == 2


def test_other_collections_are_learned_from_by_weight_and_not_judged_on(pair, fits):
    card = learn(pair, f"{OTHER}=0.25", rounds=2).card
    *folds, whole = (fit["data"] for fit in fits)
    assert whole.group_weight.tolist() == [1.0] * 5 + [0.25] * 5
    assert whole.columns == card.columns and all(map(lacks_a_family, folds))
    names = list(TREE[LAYOUT]["train"])
    assert (card.trained_on, card.also_from) == ({"train": names}, {OTHER: names})
    assert card.also_weights == {OTHER: 0.25} and set(card.folds) == set(names)
    card = learn(pair, OTHER, rounds=2).card
    assert card.also_weights == {OTHER: 1.0} and set(fits[-1]["data"].group_weight) == {1.0}


def test_weights_that_are_refused(pair):
    for weight in ("0", "-1", "half", "", "nan", "inf", "1001"):
        message = rf"weight of {OTHER} is '{weight}'; expected a number"
        with pytest.raises(CollectionError, match=message):
            learn(pair, f"{OTHER}={weight}")
    with pytest.raises(CollectionError, match="layout:cpu:random is given two weights, 1 and 2"):
        extra_collections(pair, ["layout:cpu:random", "layout:cpu:r*=2"])
    message = r"collection 'layout:tpu:random' is not in .*did you mean"
    with pytest.raises(CollectionError, match=message):
        learn(pair, "layout:tpu:random=0.5")
