"""Learning from several collections: what each counts, and columns that tell them apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.models.contract import fitted
from tests.models.rows import COLUMNS, easy_data, easy_graph, graph_rows
from xlarank.data.collection import Collection
from xlarank.data.errors import ModelError
from xlarank.data.label_source import SOURCE_COLUMNS, source_values
from xlarank.features.rows import GraphRows
from xlarank.models.explanation.parts import Rows, model_parts
from xlarank.models.ranking_data import RankingData
from xlarank.models.registry import RANKERS
from xlarank.models.trained import ModelCard, TrainedModel
from xlarank.models.validation.metrics import kendall_tau

OWN, OTHER = Collection.parse("layout:xla:random"), Collection.parse("layout:tpu-estimate:random")


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


def part_of(name: str, seed: int, clash: float) -> GraphRows:
    """Runtime grows with waste everywhere, with clash as the source says."""
    features = np.random.default_rng(seed).random((40, 3))
    costs = np.rint(1e6 * (3 + features[:, 0] + clash * features[:, 1])).astype(np.int64)
    return graph_rows(name, costs.tolist(), features=features)


def of_source(collection: Collection, number: int, seed: int, clash: float) -> RankingData:
    data = RankingData.from_graphs([part_of(f"family{i}__a", seed + i, clash) for i in range(6)])
    return data.with_constants(source_values(collection, number))


def test_rankers_that_see_the_source_learn_what_differs_between_sources() -> None:
    own, also = of_source(OWN, 0, 10, 1.0), of_source(OTHER, 1, 20, -1.0)
    seen = fitted("ranknet", own.join(also), rounds=100)
    blind = fitted("ranknet", replace_columns(own).join(replace_columns(also)), rounds=100)
    unseen = part_of("unseen__a", 99, 1.0)
    card = ModelCard(
        str(OWN), "ranknet", {}, 100, False, None, COLUMNS, {}, {},  # type: ignore[arg-type]
        source_columns=source_values(OWN, 0),
    )  # fmt: skip
    model = TrainedModel(card, [seen])
    told = kendall_tau(model.score(unseen).mean, unseen.row_cost)
    assert told > 0.75
    assert told > kendall_tau(blind.predict(unseen.matrix(), COLUMNS), unseen.row_cost) + 0.2
    # told that labels are estimates, the same ranker takes clash for a good thing
    there = TrainedModel(replace(card, source_columns=source_values(OTHER, 1)), [seen])
    assert kendall_tau(there.score(unseen).mean, part_of("unseen__a", 99, -1.0).row_cost) > 0.75
    parts = model_parts(model, Rows.of(unseen), 0, 1)
    scores = model.score(unseen).mean
    assert parts.difference == pytest.approx(scores[0] - scores[1])
    assert sum(parts.columns.values()) == pytest.approx(parts.difference, abs=1e-9)
    assert set(parts.columns) <= {*SOURCE_COLUMNS, *COLUMNS}


def replace_columns(data: RankingData) -> RankingData:
    """Without the columns of the source."""
    rows = [part.only(np.arange(len(SOURCE_COLUMNS), len(part.columns))) for part in data.parts]
    return RankingData.from_graphs(rows)


def test_columns_of_the_source_come_first_and_are_told_apart() -> None:
    data = easy_data(graphs=2, configs=5)
    wide = data.with_constants(source_values(OTHER, 3))
    assert wide.columns == [*SOURCE_COLUMNS, *COLUMNS]
    assert wide.parts[1].matrix()[:, :4].tolist() == [[0.0, 0.0, 1.0, 3.0]] * 5
    assert np.array_equal(wide.rows[:, 4:], data.rows)
    assert wide.parts[0].graph_columns == [*SOURCE_COLUMNS, "size"]
    measured = [[*source_values(Collection.parse(f"layout:{name}:random"), 0).values()] for name in ("nlp", "mine")]
    assert measured == [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]


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
