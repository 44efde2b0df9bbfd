"""Trees grown on a cluster: how rows are dealt to workers; the cluster itself is in tests/pipelines."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tests.models.rows import easy_data
from xlarank.data.errors import ClusterError
from xlarank.models.fit_settings import FitSettings
from xlarank.models.rankers import tree_cluster
from xlarank.models.rankers.lambdarank import LambdaRank
from xlarank.models.rankers.lightgbm_data import dealt_orders
from xlarank.models.rankers.tree_cluster import _NETWORK, TreeCluster, partitions, rows_between


@pytest.mark.parametrize(
    ("sizes", "workers", "edges"),
    [
        ([4, 4, 4, 4], 2, [0, 2, 4]),
        ([4, 4, 4, 4], 1, [0, 4]),
        ([1, 1, 1, 9], 2, [0, 4]),  # half of the rows are in the last group, and groups stay whole
        ([9, 1, 1, 1], 2, [0, 1, 4]),
        ([2, 2], 5, [0, 1, 2]),  # more workers than groups: some have nothing to do
    ],
)
def test_workers_get_whole_groups(sizes: list[int], workers: int, edges: list[int]) -> None:
    assert partitions(np.array(sizes), workers) == edges


@pytest.mark.parametrize("deal", [None, 3])
def test_pieces_of_the_rows_join_to_the_matrix(deal: int | None) -> None:
    data = easy_data(3, 7)
    orders = dealt_orders(data, deal)
    used = np.array([0, 2, 3])
    whole = data.matrix(orders, used)
    assert len(whole) == 21
    for bounds in ([0, 21], [0, 5, 9, 21], [0, 7, 14, 20, 21]):
        pieces = [rows_between(data, used, orders, a, b) for a, b in pairwise(bounds)]
        assert [len(piece) for piece in pieces] == np.diff(bounds).tolist()
        assert np.array_equal(np.concatenate(pieces), whole)


def test_a_booster_does_not_say_where_it_was_grown() -> None:
    network = "[machines: 10.0.0.1:4711,10.0.0.2:4712]\n[local_listen_port: 4711]\n[num_machines: 2]\n"
    assert _NETWORK.sub("", f"[seed: 1]\n{network}[verbosity: -1]\n") == "[seed: 1]\n[verbosity: -1]\n"


def _refused(*arguments: object) -> str:
    raise OSError("connection refused")


def test_a_scheduler_that_is_gone_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(tree_cluster, "_ANSWER", 0.5)
    monkeypatch.setattr(tree_cluster._Attempt, "run", _refused)
    cluster = TreeCluster("tcp://127.0.0.1:1")
    with pytest.raises(ClusterError, match="the scheduler of the cluster is gone; start it and train again"):
        LambdaRank(kind="layout").fit(easy_data(4, 10), FitSettings(2, threads=1, cluster=cluster))
    assert cluster.told() == ["a training on the cluster broke off (connection refused); it was begun anew, 2 of 3"]
