"""Rows handed to the boosters in batches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.models.contract import fitted, saved
from tests.models.rows import easy_data, easy_graph
from xlarank.features.rows import GraphRows
from xlarank.models.rankers.lightgbm_data import Batches, Learnable, binned
from xlarank.models.ranking_data import RankingData


@pytest.mark.parametrize(
    ("model", "params"),
    [
        ("lambdarank", {}),
        ("lambdarank", {"max_group": 25}),
        ("ranknet", {}),
        ("xgb-pairwise", {"graph_weight": "rows"}),
        ("pair-vote", {}),
    ],
    ids=["lambdarank", "lambdarank, dealt anew", "ranknet", "xgb-pairwise", "pair-vote"],
)
def test_batches_teach_what_one_matrix_teaches(
    model: str, params: dict[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    graphs = [easy_graph(f"f{number}__a", 20 + 15 * number, number) for number in range(4)]
    data = RankingData.from_graphs(graphs)
    whole = saved(fitted(model, data, **params), tmp_path / "whole")
    calls: list[int] = []
    matrix = GraphRows.matrix
    monkeypatch.setattr("xlarank.models.ranking_data.BATCHED", 0)
    monkeypatch.setattr(
        "xlarank.models.ranking_data.RankingData.matrix", None
    )  # nothing may ask for all rows at once
    monkeypatch.setattr(GraphRows, "matrix", lambda *args, **more: calls.append(1) or matrix(*args, **more))
    assert saved(fitted(model, data, **params), tmp_path / "batches") == whole
    assert len(calls) >= data.groups


def test_a_batch_is_no_longer_than_lightgbm_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    data, largest = easy_data(graphs=2, configs=2400), [0]
    matrix = GraphRows.matrix

    def watched(self: GraphRows, *args: object) -> np.ndarray:
        found = matrix(self, *args)
        largest[0] = max(largest[0], len(found))
        return found

    monkeypatch.setattr("xlarank.models.ranking_data.BATCHED", 0)
    monkeypatch.setattr(GraphRows, "matrix", watched)
    fitted("lambdarank", data, rounds=1)
    assert largest[0] == Batches.batch_size == 1024


def test_lightgbm_prints_nothing_in_a_thread_that_it_is_new_to(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("xlarank.models.rankers.lightgbm_data._SAMPLED", 40)
    data = easy_data(graphs=2)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(binned, data, np.arange(4), Learnable(label=np.zeros(len(data.cost))), threads=1).result()
    assert capfd.readouterr() == ("", "")
