"""Charts of a finished run-all for notebooks.

A final model is trained on all labelled graphs, so these show its out-of-fold scores and the first model on valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.errors import FeatureStoreError
from xlarank.data.workspace import Workspace
from xlarank.features.store import read_rows
from xlarank.models.objectives import mean_rank
from xlarank.models.trained import model_of
from xlarank.models.validation.evaluation import baselines
from xlarank.pipelines.reporting.charts import bars_chart, in_fixed_colours, ranks_chart, scores_chart
from xlarank.pipelines.reporting.gather import MODEL, study_pictures
from xlarank.pipelines.support.budget import read_first_scores
from xlarank.pipelines.support.evaluation import measure

#: Graphs that are drawn and whose rows are read again for the baselines: evenly many of every score.
_MOST_GRAPHS: Final = 40
_TOP_COLUMNS: Final = 12


def scores_picture(workspace: Workspace, collection: Collection) -> str | None:
    """Scores per graph beside rankings that need no model, as SVG; None where nothing was judged.

    Out of fold where the model has folds, else the first model's on valid. Without stored rows (models that came
    from elsewhere) there are no baselines. Raises `XlarankError` without matplotlib.
    """
    judged = "out of fold"
    scores = {name: one["score"] for name, one in model_of(workspace, collection).card.folds.items()}
    if not scores:
        judged = "valid, by the first model"
        scores = read_first_scores(workspace, collection).get("report", {}).get("score", {}).get("graphs", {})
    if not scores:
        return None
    ordered = sorted(scores, key=lambda graph: (scores[graph], graph))
    at = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), _MOST_GRAPHS)).round().astype(int))
    shown = [ordered[i] for i in at]
    values = {MODEL: [scores[graph] for graph in shown]}
    found = [_baselines(workspace, collection, graph) for graph in shown]
    for ranking in next(iter(found)):
        if all(ranking in one for one in found):
            values[ranking] = [one[ranking] for one in found]
    mean = np.mean(list(scores.values()))
    label = f"{measure(collection)}, {judged}: mean {mean:.3f} of {len(scores)} graphs, {len(shown)} shown"
    return in_fixed_colours(scores_chart(f"scores-{collection}", shown, values, label))


def ranks_picture(workspace: Workspace, collections: Sequence[Collection]) -> str | None:
    """Predicted against measured rank of the valid graph of each collection's median score, by its first model.

    None where no first model was judged.
    """
    panels = []
    for collection in collections:
        example = read_first_scores(workspace, collection).get("example")
        if example:
            title = f"{collection}\n{example['graph'][:30]}: {example['score']:.2f}"
            predicted, measured = (
                mean_rank(np.array(example[side], np.float64)) for side in ("predicted", "measured")
            )
            panels.append((title, predicted, measured))
    return in_fixed_colours(ranks_chart("ranks", panels)) if panels else None


def columns_picture(workspace: Workspace, collection: Collection) -> str:
    """The largest shares of the gain of all splits."""
    shares = model_of(workspace, collection).rankers[0].importance()
    return in_fixed_colours(
        bars_chart(
            f"columns-{collection}", dict(list(shares.items())[:_TOP_COLUMNS]), f"{collection}: share of the gain"
        )
    )


def tuning_pictures(workspace: Workspace, collections: Sequence[Collection]) -> list[str]:
    """The course of the collections' studies, as `tune` drew them."""
    return [picture for collection in collections for picture in study_pictures(workspace, collection)]


def _baselines(workspace: Workspace, collection: Collection, graph: str) -> dict[str, float]:
    for split in ("train", "valid"):
        path = workspace.graph_rows(collection, split, graph)
        if path.exists():
            try:
                found = baselines(collection, read_rows(path))
            except FeatureStoreError:
                return {}
            return {ranking: one["score"] for ranking, one in found.items()}
    return {}
