"""Training on a real Dask cluster of worker processes: the models it leaves, also where a worker is lost."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.models.rows import easy_data
from tests.pipelines.clusters import need, pids, two_workers
from tests.pipelines.trees import LAYOUT, TILE, stored
from xlarank.data.collection import Collection
from xlarank.data.errors import ClusterError, ModelError
from xlarank.data.workspace import Workspace
from xlarank.models.fit_settings import FitSettings
from xlarank.models.rankers.lambdarank import LambdaRank
from xlarank.models.rankers.lightgbm import BOOSTER
from xlarank.models.rankers.lightgbm_text import checked_text
from xlarank.models.rankers.tree_cluster import TreeCluster
from xlarank.models.trained import TrainedModel, model_of
from xlarank.pipelines.submit import submit
from xlarank.pipelines.train import train

slow = pytest.mark.slow


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    need("sklearn")
    with two_workers() as found:
        yield found


def trees(ranker: LambdaRank) -> str:
    """What LightGBM says of a booster, without its parameters."""
    return checked_text(ranker._learned().files[BOOSTER], len(ranker._used))


def fitted(cluster: TreeCluster | None, rounds: int = 20) -> LambdaRank:
    """On 8 graphs of 80 rows, dealt into query groups of at most 30; 0.2 s of one core for 20 rounds."""
    settings = FitSettings(rounds, threads=1, cluster=cluster)
    return LambdaRank({"max_group": 30}, kind="layout").fit(easy_data(8, 80), settings)


@slow
def test_one_worker_grows_the_trees_of_this_process() -> None:
    need("sklearn")
    with two_workers(1) as address:
        there = fitted(TreeCluster(address))
    assert trees(there) == trees(fitted(None))


@slow
def test_two_workers_grow_the_same_trees_again_and_score_alike(address: str) -> None:
    one, two, here = (fitted(cluster) for cluster in (TreeCluster(address), TreeCluster(address), None))
    assert one._learned() == two._learned()
    assert "127.0.0.1" not in one._learned().files[BOOSTER]
    part = easy_data(8, 80, seed=1).parts[0]
    scores = [ranker.predict(part.matrix(), part.columns) for ranker in (one, here)]
    assert np.corrcoef(scores)[0, 1] > 0.98


@slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_training_that_loses_a_worker_ends_and_the_next_one_works(address: str) -> None:
    undisturbed = fitted(TreeCluster(address))
    killer = threading.Thread(target=kill_in_training, args=(address,))
    killer.start()
    with pytest.raises(ClusterError, match=r"a training on the cluster broke off \(.*train again"):
        fitted(TreeCluster(address), rounds=2000)
    killer.join()
    assert len(pids(address)) == 2
    assert fitted(TreeCluster(address))._learned() == undisturbed._learned()


def kill_in_training(address: str) -> None:
    """SIGKILL for one of the workers once LightGBM is at work."""
    from distributed import Client

    victim = pids(address)[0]
    with Client(address, set_as_default=False) as client:
        while not any("_train_part" in str(key) for keys in client.processing().values() for key in keys):
            time.sleep(0.02)
    time.sleep(0.3)
    os.kill(victim, signal.SIGKILL)


def test_a_scheduler_that_is_gone_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("distributed.Client.__init__", refused)
    with pytest.raises(ClusterError, match=r"broke off \(connection refused\); expected a scheduler"):
        fitted(TreeCluster("tcp://127.0.0.1:1"))


def refused(*arguments: object, **options: object) -> None:
    raise OSError("connection refused")


def model(workspace: Path, collection: str) -> TrainedModel:
    return model_of(Workspace(workspace), Collection.parse(collection))


@slow
def test_a_trained_model_is_an_ordinary_one(address: str, built: Path, tmp_path: Path) -> None:
    here = Path(shutil.copytree(built, tmp_path / "here"))
    options = {"collections": [LAYOUT], "seeds": 1, "rounds": 30}
    (there,) = train(Workspace(built), **options, engine="dask", scheduler=address)  # type: ignore[arg-type]
    (local,) = train(Workspace(here), **options, threads=1)  # type: ignore[arg-type]
    assert there.folds.keys() == local.folds.keys()
    assert there.chosen_by == local.chosen_by == "3 folds by family"
    one, other = model(built, LAYOUT).card, model(here, LAYOUT).card
    blank = {"seeds": 0, "folds": 0, "rounds": 0}
    assert vars(one) | blank == vars(other) | blank
    assert len(one.seeds) == 1 and one.folds.keys() == other.folds.keys()
    graph = stored(built, split="valid")["delta__a"]
    (scores,) = model(built, LAYOUT).score(graph).per_seed
    assert np.isfinite(scores).all() and len(scores) == len(graph)
    submitted = submit(Workspace(built), tmp_path / "submission.csv", collections=[LAYOUT])
    assert submitted.rows == {LAYOUT: 2}


@pytest.mark.parametrize("name", ["ranknet", "ensemble", "auto"])
def test_a_loss_of_our_own_is_not_distributed(built: Path, name: str) -> None:
    with pytest.raises(ModelError, match=rf"--engine dask with --model {name}; expected lambdarank: .*; leave out"):
        train(Workspace(built), model=name, engine="dask", scheduler="local")


def test_an_engine_needs_its_cluster(built: Path) -> None:
    with pytest.raises(ClusterError, match=r"--engine dask has no cluster; expected --scheduler host:port"):
        train(Workspace(built), engine="dask")
    with pytest.raises(ClusterError, match=r"--scheduler is named for --engine local; pass --engine dask"):
        train(Workspace(built), scheduler="local")
    with pytest.raises(ModelError, match=r"--engine is 'spark'; expected local or dask"):
        train(Workspace(built), engine="spark", scheduler="local")


@pytest.mark.parametrize("missing", ["sklearn", "distributed"])
def test_without_the_extra_it_is_named(built: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    if missing == "sklearn":
        monkeypatch.setattr("xlarank.pipelines.support.engines.find_spec", lambda name: None)
    else:
        monkeypatch.setattr("xlarank.pipelines.support.engines.find_spec", lambda name: object())
        monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(
        ClusterError, match=r"not installed; expected the extra dask; pip install 'xlarank\[dask\]'"
    ):
        train(Workspace(built), collections=[TILE], engine="dask", scheduler="local")
