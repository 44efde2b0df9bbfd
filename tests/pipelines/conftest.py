"""A data tree, the same tree built and the same tree trained, each made once and copied by tests that write."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.pipelines.postgres import PostgresServer
from tests.pipelines.trees import build, write_tree
from xlarank.data.workspace import Workspace
from xlarank.pipelines.support.fitting import TrainRequest
from xlarank.pipelines.train import train


@pytest.fixture(scope="session")
def shared_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root of a data tree; not to be written to."""
    return write_tree(tmp_path_factory.mktemp("tree")).path


@pytest.fixture(scope="session")
def shared_built(shared_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Workspace with the rows of the tree; not to be written to."""
    workspace = tmp_path_factory.mktemp("built")
    assert not build(shared_tree, workspace).broken
    return workspace


@pytest.fixture(scope="session")
def shared_trained(shared_built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Workspace with rows and models of two seeds; not to be written to."""
    workspace = Path(shutil.copytree(shared_built, tmp_path_factory.mktemp("trained") / "work"))
    train(Workspace(workspace), TrainRequest(seeds=2, rounds=30, threads=1))
    return workspace


def copy_of(name: str) -> Callable[..., Path]:
    """A copy of the shared one of the name, which may be written to."""

    def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        return Path(shutil.copytree(request.getfixturevalue(f"shared_{name}"), tmp_path / name))

    return pytest.fixture(name=name)(copied)


tree, built, trained = map(copy_of, ("tree", "built", "trained"))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A running PostgreSQL server; skips the test, visibly, where none is installed."""
    server = PostgresServer()
    yield server
    server.stop()
    shutil.rmtree(server.folder)


@pytest.fixture
def database(postgres_server: PostgresServer, request: pytest.FixtureRequest) -> str:
    """The name of a new database of it."""
    name = f"tuning{zlib.crc32(request.node.nodeid.encode()):08x}"
    postgres_server.create(name)
    return name
