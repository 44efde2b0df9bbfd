"""The report's pictures for notebooks: what they show of a workspace, and in fixed colours."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from tests.pipelines.trees import LAYOUT
from xlarank.data.collection import Collection
from xlarank.data.workspace import Workspace
from xlarank.pipelines.reporting.job_pictures import ranks_picture
from xlarank.pipelines.support.budget import first_scores

COLLECTION = Collection.parse(LAYOUT)


def words(svg: str) -> str:
    return " ".join(ElementTree.fromstring(svg).itertext())


def test_ranks_are_those_of_the_first_model(trained: Path) -> None:
    place = Workspace(trained)
    assert ranks_picture(place, [COLLECTION]) is None
    first = first_scores(place, COLLECTION)
    first.parent.mkdir(parents=True, exist_ok=True)
    first.write_text(
        '{"report": {"score": {"mean": 0.5, "std": 0.1}}, "example": {"graph": "mlp__a", "score": 0.5, '
        '"predicted": [0.1, 0.2, 0.3], "measured": [10, 30, 20]}}'
    )
    svg = ranks_picture(place, [COLLECTION])
    assert svg is not None and "mlp__a: 0.50" in words(svg) and "rank by label" in words(svg)
