"""Rows kept without what is constant, and handed to the boosters in batches."""

from __future__ import annotations

from pathlib import Path

import lightgbm as lgb
import numpy as np
import pytest

from tests.models.contract import fitted, saved
from tests.models.rows import easy_data, easy_graph
from xlarank.models.ranking_data import RankingData
from xlarank.models.wide_rows import WideRows

PART = WideRows(np.array([7, 8], np.float32), np.arange(12, dtype=np.float32).reshape(4, 3))
WHOLE = np.array([[7, 8, 0, 1, 2], [7, 8, 3, 4, 5], [7, 8, 6, 7, 8], [7, 8, 9, 10, 11]])


def test_written_out_in_full() -> None:
    assert (len(PART), PART.width) == (4, 5)
    assert PART.matrix().dtype == np.float32
    assert PART.matrix().flags.c_contiguous
    assert np.array_equal(PART.matrix(), WHOLE)


@pytest.mark.parametrize("which", [None, slice(1, 3), np.array([3, 0]), np.array([], np.intp)])
@pytest.mark.parametrize("used", [None, [0, 1, 2, 3, 4], [1, 3], [0, 1], [2, 4], []])
def test_some_rows_and_columns(which: np.ndarray | slice | None, used: list[int] | None) -> None:
    rows = WHOLE if which is None else WHOLE[which]
    wanted = rows if used is None else rows[:, used]
    found = PART.matrix(which, None if used is None else np.array(used, np.intp))
    assert np.array_equal(found, wanted)
    assert found.flags.c_contiguous


def test_a_copy_not_a_view() -> None:
    PART.matrix()[:] = 0
    assert np.array_equal(PART.matrix(), WHOLE)


@pytest.mark.parametrize(
    ("model", "params"),
    [
        ("lambdarank", {}),
        ("lambdarank", {"max_group": 25}),
        ("rankreg", {}),
        ("ranknet", {}),
        ("xgb-pairwise", {"graph_weight": "rows"}),
    ],
    ids=["lambdarank", "lambdarank, dealt anew", "rankreg", "ranknet", "xgb-pairwise"],
)
def test_batches_teach_what_one_matrix_teaches(
    model: str, params: dict[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    graphs = [easy_graph(f"f{number}__a", 20 + 15 * number, number) for number in range(4)]
    data = RankingData.from_graphs(graphs)
    whole = saved(fitted(model, data, **params), tmp_path / "whole")
    calls: list[int] = []
    matrix = WideRows.matrix
    monkeypatch.setattr("xlarank.models.wide_rows.BATCHED", 0)
    monkeypatch.setattr(
        "xlarank.models.ranking_data.RankingData.matrix", None
    )  # nothing may ask for all rows at once
    monkeypatch.setattr(WideRows, "matrix", lambda *args, **more: calls.append(1) or matrix(*args, **more))
    assert saved(fitted(model, data, **params), tmp_path / "batches") == whole
    assert len(calls) >= data.groups


def test_a_batch_is_no_longer_than_lightgbm_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    data, largest = easy_data(graphs=2, configs=5000), [0]
    matrix = WideRows.matrix

    def watched(self: WideRows, *args: object) -> np.ndarray:
        found = matrix(self, *args)
        largest[0] = max(largest[0], len(found))
        return found

    monkeypatch.setattr("xlarank.models.wide_rows.BATCHED", 0)
    monkeypatch.setattr(WideRows, "matrix", watched)
    fitted("lambdarank", data, rounds=1)
    assert largest[0] == lgb.Sequence.batch_size == 4096
