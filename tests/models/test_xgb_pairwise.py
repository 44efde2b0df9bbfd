"""What is particular to XGBoost's pairwise ranker; the contract is tested in test_registry."""

from __future__ import annotations

import builtins
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import xgboost as xgb

from tests.models.contract import fitted
from tests.models.rows import easy_data, graph_rows
from xlarank.data.errors import ModelError
from xlarank.models.rankers.xgb_pairwise import XGBPairwise
from xlarank.models.training_data import TrainingData


def test_what_xgboost_is_asked_to_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[dict[str, Any], xgb.DMatrix, int]] = []
    train = xgb.train

    def spy(params: dict[str, Any], data: xgb.DMatrix, rounds: int) -> xgb.Booster:
        calls.append((params, data, rounds))
        return train(params, data, rounds)

    monkeypatch.setattr(xgb, "train", spy)
    data = TrainingData.from_graphs([graph_rows("a", [300, 100, 101, 200]), graph_rows("b", [5, 6])])
    fitted("xgb-pairwise", data, rounds=4, seed=7, pairs=5, tie_tolerance=0.05)
    ((params, matrix, rounds),) = calls
    assert rounds == 4
    assert params["objective"] == "rank:pairwise"
    assert params["lambdarank_pair_method"] == "mean", "no pair is cut off"
    assert params["lambdarank_num_pair_per_sample"] == 5
    assert params["lambdarank_score_normalization"] is False, "all pairs count the same"
    assert (params["tree_method"], params["seed"], params["nthread"]) == ("hist", 7, 1)
    assert "eval_metric" in params
    assert matrix.get_label() == pytest.approx([0, 5 / 6, 5 / 6, 1 / 3, 1, 0]), "higher is faster, near costs tie"
    assert matrix.get_uint_info("group_ptr").tolist() == [0, 4, 6]
    assert matrix.get_weight() == pytest.approx([0.75, 1.5]), "a weight a graph: 3 in all for each"


def test_without_xgboost_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fitted("xgb-pairwise", easy_data(graphs=2), rounds=1).save(tmp_path)
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "xgboost":
            raise ModuleNotFoundError("No module named 'xgboost'")
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    for call in (lambda: fitted("xgb-pairwise", easy_data(graphs=2)), lambda: XGBPairwise.load(tmp_path)):
        with pytest.raises(ModelError, match=r"needs the module xgboost .*pip install xgboost-cpu"):
            call()
    fitted("lambdarank", easy_data(graphs=2), rounds=1)


@pytest.mark.slow
def test_other_rankers_do_not_pay_for_the_import() -> None:
    code = "import sys, xlarank.models.registry; print('xgboost' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
