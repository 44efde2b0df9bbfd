"""What is learned from, here and in other collections."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.models.rows import COLUMNS, easy_data, easy_graph
from xlarank.data.errors import ModelError
from xlarank.models.ranking_data import RankingData, TrainingSet

#: Families 0, 0, 1, 1, 2, 2; the other collection has family 1 and one of its own.
DATA = easy_data(configs=9)
ALSO = RankingData.from_graphs([easy_graph("family1__z", 9, 70), easy_graph("other__a", 9, 71)])


def test_joined_groups_keep_their_rows() -> None:
    joined = DATA.join(ALSO)
    assert joined.names == [*DATA.names, "family1__z", "other__a"] and joined.groups == 8
    assert joined.indptr.tolist() == list(range(0, 73, 9))
    assert np.array_equal(joined.rows, np.concatenate([DATA.rows, ALSO.rows]))
    assert np.array_equal(joined.take([7]).cost, ALSO.cost[9:])
    assert joined.instances_of(7) is None


def test_other_columns_cannot_be_joined() -> None:
    with pytest.raises(ModelError, match="family1__z and family0__a have different columns"):
        DATA.join(replace(ALSO, columns=COLUMNS[::-1]))


def test_a_held_out_family_is_held_out_everywhere() -> None:
    training = TrainingSet("layout", DATA, also=ALSO)
    assert training.without([2]).names == [DATA.names[g] for g in (0, 1, 3, 4, 5)] + ["other__a"]
    assert training.without([0, 1]).names == [*DATA.names[2:], "family1__z", "other__a"]
    assert training.whole().names == [*DATA.names, *ALSO.names]


def test_without_other_collections_only_the_groups_are_left_out() -> None:
    training = TrainingSet("layout", DATA)
    assert training.without([2]).names == [DATA.names[g] for g in (0, 1, 3, 4, 5)]
    assert training.whole() is DATA
