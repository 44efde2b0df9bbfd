"""Bins that all fits share teach the same trees."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest

from tests.models.contract import saved
from tests.models.rows import COLUMNS, easy_graph
from xlarank.features.rows import GraphRows
from xlarank.models.base import Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.rankers import binned as module
from xlarank.models.rankers.binned import BinnedRows
from xlarank.models.rankers.lightgbm_data import Learnable
from xlarank.models.ranking_data import RankingData
from xlarank.models.registry import ranker_class

ALL = np.arange(len(COLUMNS))
#: Ranker and parameters; in the second graphs are dealt into query groups.
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "lambdarank": ("lambdarank", {}),
    "lambdarank, dealt": ("lambdarank", {"max_group": 25}),
    "ranknet": ("ranknet", {}),
    "ensemble": ("ensemble", {"weight_lambdarank": 1.0, "weight_sum_pooled": 0.0}),
}


def graphs() -> list[GraphRows]:
    return [easy_graph(f"f{number}__a", 40 + 15 * number, number) for number in range(5)]


@pytest.fixture(scope="module")
def data() -> RankingData:
    return RankingData.from_graphs(graphs())


def fit(name: str, data: RankingData, bins: BinnedRows | None = None) -> Ranker[Any]:
    model, params = FITS[name]
    return ranker_class(model)(params, kind="layout").fit(data, FitSettings(12, 0, 1, bins))


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("batched", [2**27, 0])
def test_all_groups_teach_what_they_teach_without(
    name: str, batched: int, data: RankingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xlarank.models.rankers.lightgbm_data._SAMPLED", 40)
    alone = saved(fit(name, data), tmp_path / "alone")
    monkeypatch.setattr("xlarank.models.ranking_data.BATCHED", batched)
    assert saved(fit(name, data, BinnedRows(data, threads=1)), tmp_path / "shared") == alone


@pytest.mark.parametrize("sampled", [10_000, 40])
def test_some_groups_have_the_bounds_of_all(
    data: RankingData, sampled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trees are those of the fold's rows binned by the bounds of all, which LightGBM does by a reference."""
    monkeypatch.setattr("xlarank.models.rankers.lightgbm_data._SAMPLED", sampled)
    fold = data.take([0, 2, 3])
    label = np.arange(len(fold.cost)) % 7.0
    sizes = [len(part) for part in fold.parts]
    bins = BinnedRows(data, threads=1)
    shared = bins.dataset(fold, ALL, Learnable(label=label, sizes=sizes, start=label / 2, weight=label + 1))
    params = {"max_bin": 63, "feature_pre_filter": False, "verbose": -1, "num_threads": 1}
    some = np.sort(np.random.default_rng(0).choice(len(data.cost), min(len(data.cost), sampled), replace=False))
    whole = lgb.Dataset(data.matrix()[some], np.zeros(len(some)), params=params)
    oracle = lgb.Dataset(
        fold.matrix(), label, reference=whole, group=sizes, init_score=label / 2, weight=label + 1, params=params
    )
    grow = {
        "objective": "lambdarank",
        "num_threads": 1,
        "deterministic": True,
        "verbose": -1,
        "min_data_in_leaf": 3,
    }
    texts = [lgb.train(grow, one, 10).model_to_string() for one in (shared, oracle)]
    assert "\nTree=9\n" in texts[0]
    assert texts[0].partition("\nparameters:")[0] == texts[1].partition("\nparameters:")[0]


def test_fits_at_the_same_time_do_not_see_each_other(data: RankingData, tmp_path: Path) -> None:
    held = [data.take([g for g in range(data.groups) if g != out]) for out in range(data.groups)]
    bins = BinnedRows(data, threads=1)
    one_by_one = [saved(fit("lambdarank", part, bins), tmp_path / f"{n}") for n, part in enumerate(held)]
    with ThreadPoolExecutor(3) as pool:
        fitted = list(pool.map(lambda part: fit("lambdarank", part, bins), [*held, data, data]))
    assert [saved(one, tmp_path / f"again{n}") for n, one in enumerate(fitted[:-2])] == one_by_one
    assert saved(fitted[-1], tmp_path / "all") == saved(fitted[-2], tmp_path / "all again")


def test_rows_are_binned_once(data: RankingData, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    binned = module.binned
    monkeypatch.setattr(module, "binned", lambda *args, **more: calls.append(1) or binned(*args, **more))
    bins = BinnedRows(data, threads=1)
    for out in range(3):
        fit("ranknet", data.take([g for g in range(data.groups) if g != out]), bins)
    fit("lambdarank", data, bins)
    assert len(calls) == 1
    fit("lambdarank, dealt", data, bins)
    assert len(calls) == 2, "another order of the rows"


def test_other_groups_are_binned_as_ever(data: RankingData, tmp_path: Path) -> None:
    bins = BinnedRows(data, threads=1)
    same_values = RankingData.from_graphs(graphs())
    assert bins.holds(data) and bins.holds(data.take([1, 3]))
    for other in (same_values, data.take([3, 1]), data.take([1, 1]), data.join(same_values)):
        assert not bins.holds(other)
    assert saved(fit("ranknet", same_values, bins), tmp_path / "a") == saved(fit("ranknet", data), tmp_path / "b")


def test_lightgbm_prints_nothing_in_a_thread_that_it_is_new_to(
    data: RankingData, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("xlarank.models.rankers.lightgbm_data._SAMPLED", 40)
    bins = BinnedRows(data, threads=1)
    label = np.zeros(len(data.cost))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(bins.dataset, data.take([0, 1]), ALL, Learnable(label=label[: data.indptr[2]])).result()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(bins.dataset, data, ALL, Learnable(label=label)).result()
    assert capfd.readouterr() == ("", "")
