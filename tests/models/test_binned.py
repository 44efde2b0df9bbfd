"""Bins that all fits share: the same trees, from memory and from files, and no file that is not our own."""

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


def graphs(shift: float = 0.0) -> list[GraphRows]:
    made = [easy_graph(f"f{number}__a", 40 + 15 * number, number) for number in range(5)]
    made[0].config_values[0, 0] += np.float32(shift)
    return made


@pytest.fixture(scope="module")
def data() -> RankingData:
    return RankingData.from_graphs(graphs())


def fit(name: str, data: RankingData, bins: BinnedRows | None = None) -> Ranker[Any]:
    model, params = FITS[name]
    return ranker_class(model)(params, kind="layout").fit(data, FitSettings(12, 0, 1, bins))


@pytest.fixture
def no_binning(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on whoever bins rows fails."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("the rows are binned once more")

    monkeypatch.setattr(module, "binned", fail)
    monkeypatch.setattr("xlarank.models.rankers.lightgbm.binned", fail)


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("kept", ["in memory", "in a folder"])
def test_all_groups_teach_what_they_teach_without(
    name: str, kept: str, data: RankingData, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    alone = saved(fit(name, data), tmp_path / "alone")
    bins = BinnedRows(data, folder=tmp_path / "bins" if kept == "in a folder" else None, threads=1)
    assert saved(fit(name, data, bins), tmp_path / "shared") == alone
    if kept == "in a folder":
        request.getfixturevalue("no_binning")
        again = BinnedRows(RankingData.from_graphs(graphs()), folder=tmp_path / "bins", threads=1)
        assert saved(fit(name, again.data, again), tmp_path / "read") == alone


@pytest.mark.parametrize("frugal", [False, True])
@pytest.mark.parametrize("sampled", [10_000, 40])
def test_some_groups_have_the_bounds_of_all(
    data: RankingData, tmp_path: Path, frugal: bool, sampled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trees are those of the fold's rows binned by the bounds of all, which LightGBM does by a reference."""
    monkeypatch.setattr("xlarank.models.rankers.lightgbm_data._SAMPLED", sampled)
    fold = data.take([0, 2, 3])
    label = np.arange(len(fold.cost)) % 7.0
    sizes = [len(part) for part in fold.parts]
    bins = BinnedRows(data, folder=tmp_path, threads=1, frugal=frugal)
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


@pytest.mark.parametrize("name", ["lambdarank, dealt", "ranknet"])
@pytest.mark.parametrize("held", [[], [1, 4]], ids=["all groups", "some groups"])
def test_bounds_from_a_sample_are_the_same_wherever_bins_come_from(
    name: str, held: list[int], data: RankingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory, in batches, from a file, made anew for each fold: one booster."""
    monkeypatch.setattr("xlarank.models.rankers.lightgbm_data._SAMPLED", 40)
    fold = data.take([g for g in range(data.groups) if g not in held])
    boosters = []
    for number, (folder, frugal, batched) in enumerate(
        [(None, False, 2**27), (tmp_path / "a", False, 2**27), (tmp_path / "b", True, 0), (tmp_path / "b", True, 0)]
    ):
        monkeypatch.setattr("xlarank.models.ranking_data.BATCHED", batched)
        bins = BinnedRows(data, folder=folder, threads=1, frugal=frugal)
        boosters.append(saved(fit(name, fold, bins), tmp_path / f"{number}"))
    assert boosters == boosters[:1] * 4
    monkeypatch.setattr("xlarank.models.rankers.lightgbm_data._SAMPLED", 41)
    assert saved(fit(name, fold, BinnedRows(data, threads=1)), tmp_path / "other sample") != boosters[0]


def test_frugal_bins_of_some_groups_need_no_bins_of_all(
    data: RankingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xlarank.models.rankers.lightgbm_data._SAMPLED", 40)
    monkeypatch.setattr(BinnedRows, "_whole", None)
    fit("ranknet", data.take([0, 1]), BinnedRows(data, folder=tmp_path, threads=1, frugal=True))
    assert not [*tmp_path.glob("*.bin")]


def test_fits_at_the_same_time_do_not_see_each_other(data: RankingData, tmp_path: Path) -> None:
    held = [data.take([g for g in range(data.groups) if g != out]) for out in range(data.groups)]
    bins = BinnedRows(data, folder=tmp_path / "bins", threads=1)
    one_by_one = [saved(fit("lambdarank", part, bins), tmp_path / f"{n}") for n, part in enumerate(held)]
    with ThreadPoolExecutor(3) as pool:
        fitted = list(pool.map(lambda part: fit("lambdarank", part, bins), [*held, data, data]))
    assert [saved(one, tmp_path / f"again{n}") for n, one in enumerate(fitted[:-2])] == one_by_one
    assert saved(fitted[-1], tmp_path / "all") == saved(fitted[-2], tmp_path / "all again")


def test_rows_are_binned_once(data: RankingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    binned = module.binned
    monkeypatch.setattr(module, "binned", lambda *args, **more: calls.append(1) or binned(*args, **more))
    bins = BinnedRows(data, folder=tmp_path, threads=1)
    bins.prepare(ALL)
    for out in range(3):
        fit("ranknet", data.take([g for g in range(data.groups) if g != out]), bins)
    fit("lambdarank", data, bins)
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


@pytest.fixture
def folder(data: RankingData, tmp_path: Path) -> Path:
    """A folder with the bins of ``data``."""
    BinnedRows(data, folder=tmp_path / "bins", threads=1).prepare(ALL)
    return tmp_path / "bins"


def binned_again(folder: Path, data: RankingData, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a new process would not take what lies there; it must train as ever in any case."""
    calls: list[int] = []
    binned = module.binned
    monkeypatch.setattr(module, "binned", lambda *args, **more: calls.append(1) or binned(*args, **more))
    ranker = fit("ranknet", data, BinnedRows(data, folder=folder, threads=1))
    rows = data.parts[0].matrix()
    assert np.array_equal(ranker.predict(rows, COLUMNS), fit("ranknet", data).predict(rows, COLUMNS))
    return bool(calls)


def test_a_whole_file_of_our_own_is_taken(folder: Path, data: RankingData, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not binned_again(folder, data, monkeypatch)


@pytest.mark.parametrize("damage", ["flipped", "cut", "no code", "other code", "no bins", "code is no text"])
def test_a_damaged_file_is_made_anew(
    damage: str, folder: Path, data: RankingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bins,), (code,) = folder.glob("*.bin"), folder.glob("*.code")
    content = bytearray(bins.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
        bins.write_bytes(content)
    elif damage == "cut":
        bins.write_bytes(content[:-10])
    elif damage == "no bins":
        bins.unlink()
    elif damage == "no code":
        code.unlink()
    else:
        code.write_bytes(b"\xff" * 64 if damage == "code is no text" else b"0" * 64)
    assert binned_again(folder, data, monkeypatch)
    monkeypatch.undo()
    assert not binned_again(folder, data, monkeypatch), "it was mended"


def test_a_strangers_file_is_never_read(
    folder: Path, data: RankingData, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A whole file with its right code, made under another secret: a workspace that was copied."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another home"))
    assert binned_again(folder, data, monkeypatch)


def test_a_file_of_other_rows_is_not_taken_for_these(
    folder: Path, data: RankingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = RankingData.from_graphs(graphs(shift=0.25))
    assert binned_again(folder, other, monkeypatch)
    (first, second), codes = sorted(folder.glob("*.bin")), sorted(folder.glob("*.code"))
    for one, two in ((first, second), codes):  # swapped with their codes: whole files, but of other rows
        a, b = one.read_bytes(), two.read_bytes()
        one.write_bytes(b)
        two.write_bytes(a)
    monkeypatch.undo()
    assert binned_again(folder, data, monkeypatch)


def test_labels_do_not_count(folder: Path, data: RankingData, monkeypatch: pytest.MonkeyPatch) -> None:
    relabelled = [GraphRows(**{**vars(part), "runtime": part.runtime[::-1]}) for part in data.parts]
    assert not binned_again(folder, RankingData.from_graphs(relabelled), monkeypatch)


def test_without_a_home_or_a_folder_that_can_be_written_bins_stay_in_memory(
    data: RankingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    alone = saved(fit("ranknet", data), tmp_path / "alone")
    in_file = fit("ranknet", data, BinnedRows(data, folder=blocked, threads=1))
    assert saved(in_file, tmp_path / "folder is a file") == alone
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    homeless = fit("ranknet", data, BinnedRows(data, folder=tmp_path / "bins", threads=1))
    assert saved(homeless, tmp_path / "homeless") == alone
    assert not [*tmp_path.glob("bins/*.bin")]


def test_lightgbm_prints_nothing_in_a_thread_that_it_is_new_to(
    data: RankingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("xlarank.models.rankers.lightgbm_data._SAMPLED", 40)
    bins = BinnedRows(data, folder=tmp_path, threads=1, frugal=True)
    label = np.zeros(len(data.cost))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(bins.dataset, data.take([0, 1]), ALL, Learnable(label=label[: data.indptr[2]])).result()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(bins.dataset, data, ALL, Learnable(label=label)).result()
    assert [*tmp_path.glob("*.bin")]
    assert capfd.readouterr() == ("", "")


def test_the_oldest_files_go(data: RankingData, tmp_path: Path) -> None:
    bins = BinnedRows(data, folder=tmp_path, threads=1)
    for seed in range(10):
        bins.prepare(ALL, deal=seed)
    assert len([*tmp_path.glob("*.bin")]) == len([*tmp_path.glob("*.code")]) == 8
