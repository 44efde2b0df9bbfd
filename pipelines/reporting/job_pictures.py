"""A chart of a finished run-all for notebooks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.workspace import Workspace
from xlarank.models.objectives import mean_rank
from xlarank.pipelines.reporting.charts import in_fixed_colours, ranks_chart
from xlarank.pipelines.support.budget import read_first_scores


def ranks_picture(workspace: Workspace, collections: Sequence[Collection]) -> str | None:
    """Predicted against measured rank of the valid graph of each collection's median score, by its first model.

    None where no first model was evaluated. Raises `XlarankError` without matplotlib.
    """
    panels = []
    for collection in collections:
        if example := read_first_scores(workspace, collection).get("example"):
            title = f"{collection}\n{example['graph'][:30]}: {example['score']:.2f}"
            ranks = [mean_rank(np.array(example[side], np.float64)) for side in ("predicted", "measured")]
            panels.append((title, ranks[0], ranks[1]))
    return in_fixed_colours(ranks_chart("ranks", panels)) if panels else None
