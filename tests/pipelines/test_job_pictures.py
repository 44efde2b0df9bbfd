"""The report's pictures for notebooks: what they show of a workspace, and in fixed colours."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.pipelines.trees import LAYOUT
from xlarank.data.collection import Collection
from xlarank.data.workspace import Workspace
from xlarank.models.trained import model_of
from xlarank.pipelines.reporting.job_pictures import ranks_picture, scores_picture, tuning_pictures
from xlarank.pipelines.support.budget import first_scores

COLLECTION = Collection.parse(LAYOUT)


def words(svg: str) -> str:
    return " ".join(ElementTree.fromstring(svg).itertext())


@pytest.mark.slow
def test_scores_stand_beside_baselines_on_the_same_graphs(shared_trained: Path) -> None:
    place = Workspace(shared_trained)
    svg = scores_picture(place, COLLECTION)
    assert svg is not None and "var(--" not in svg and "currentColor" not in svg
    told = words(svg)
    assert all(graph in told for graph in model_of(place, COLLECTION).card.folds)
    assert "out of fold" in told and "file order" in told and "random" in told


def test_ranks_are_those_of_the_first_model(trained: Path) -> None:
    place = Workspace(trained)
    assert ranks_picture(place, [COLLECTION]) is None and tuning_pictures(place, [COLLECTION]) == []
    first = first_scores(place, COLLECTION)
    first.parent.mkdir(parents=True, exist_ok=True)
    first.write_text(
        '{"report": {"score": {"mean": 0.5, "std": 0.1}}, "example": {"graph": "mlp__a", "score": 0.5, '
        '"predicted": [0.1, 0.2, 0.3], "measured": [10, 30, 20]}}'
    )
    svg = ranks_picture(place, [COLLECTION])
    assert svg is not None and "mlp__a: 0.50" in words(svg) and "rank by label" in words(svg)
