"""Learning from several collections: what each counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.models.contract import fitted
from tests.models.rows import COLUMNS, easy_data, easy_graph
from xlarank.data.errors import ModelError
from xlarank.features.rows import GraphRows
from xlarank.models.ranking_data import RankingData
from xlarank.models.registry import RANKERS
from xlarank.models.validation.metrics import kendall_tau


def turned(graph: GraphRows) -> GraphRows:
    """The same rows, the other way round: what was fast is slow."""
    return replace(graph, name=f"turned{graph.name}", runtime=graph.runtime.max() + 1 - graph.runtime)


@pytest.mark.parametrize("model", [name for name in RANKERS if name != "sibling"])
def test_the_heavier_of_two_contradicting_sources_is_believed(model: str) -> None:
    own = easy_data(graphs=4, configs=40)
    also = RankingData.from_graphs([turned(part) for part in own.parts])
    graph = easy_graph("unseen__a", 40, seed=5)
    taus = []
    for weight in (0.05, 20.0):
        ranker = fitted(model, own.join(also.weighted(weight)))
        taus.append(kendall_tau(ranker.predict(graph.matrix(), COLUMNS), graph.row_cost))
    assert taus[0] > 0.6 and taus[1] < -0.6


def test_a_weight_of_one_changes_nothing() -> None:
    data = easy_data(graphs=4, configs=20)
    one, other = fitted("lambdarank", data), fitted("lambdarank", data.weighted(1.0))
    assert np.array_equal(one.predict(data.rows, COLUMNS), other.predict(data.rows, COLUMNS))


def test_weights_of_groups_are_taken_and_joined_with_them() -> None:
    data = easy_data(graphs=4, configs=3)
    assert data.weight is None and data.row_weight is None and data.take([0]).weight is None
    joined = data.take([0]).join(data.take([1, 2]).weighted(0.5))
    assert joined.group_weight.tolist() == [1.0, 0.5, 0.5]
    assert joined.take([2, 0]).group_weight.tolist() == [0.5, 1.0]
    row_weight = joined.row_weight
    assert row_weight is not None and row_weight.tolist() == [1.0] * 3 + [0.5] * 6
    with pytest.raises(ModelError, match="weight is 0"):
        data.weighted(0)
