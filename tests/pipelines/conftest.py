"""A data tree, built and trained, made once and copied by tests that write; a PostgreSQL server."""

import logging
import os
import shutil
import socket
import subprocess
import tempfile
import zlib
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.pipelines.trees import build, train_models, write_tree
from xlarank.models.member import Member

#: If 1, tests that would be skipped without a server fail.
REQUIRED = "XLARANK_REQUIRE_SERVERS"
PASSWORD = "s3cret@of/tests"
#: Imports JAX, which only the process of the compiler has.
collect_ignore = ["compiled_programs.py"]


@pytest.fixture(scope="session")
def shared_tree(tmp_path_factory):
    """Root of a data tree; not to be written to."""
    return write_tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="session")
def shared_built(shared_tree, tmp_path_factory):
    """Workspace with the rows of the tree; not to be written to."""
    workspace = tmp_path_factory.mktemp("built")
    assert not build(shared_tree, workspace).broken
    return workspace


@pytest.fixture(scope="session")
def shared_trained(shared_built, tmp_path_factory):
    """Workspace with rows and models of two seeds; only results and scores may be added."""
    workspace = shutil.copytree(shared_built, tmp_path_factory.mktemp("trained") / "work")
    train_models(workspace, seeds=2, rounds=30)
    return workspace


def copy_of(name):
    """Return a fixture: a copy of the fixture ``shared_<name>`` that may be written to."""

    def copied(request, tmp_path):
        return shutil.copytree(request.getfixturevalue(f"shared_{name}"), tmp_path / name)

    return pytest.fixture(name=name)(copied)


tree, built, trained = map(copy_of, ("tree", "built", "trained"))


@pytest.fixture
def fits(monkeypatch):
    """Data, parameters and settings of every fit of a member."""
    calls = []
    fit = Member.fit

    def spy(self, data, settings):
        calls.append({"data": data, "params": dict(self.params), **asdict(settings)})
        return fit(self, data, settings)

    monkeypatch.setattr(Member, "fit", spy)
    return calls


def skip_or_fail(why):
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{why}, and {REQUIRED} is 1")
    pytest.skip(why)


def need(package):
    """Skip the test if a package for Dask is missing, or fail it if nothing may be skipped."""
    if find_spec(package) is None:
        skip_or_fail(f"{package} is not installed (pip install 'xlarank[dask]')")


@contextmanager
def local_cluster(workers):
    """Start a Dask cluster of single-threaded worker processes and yield it."""
    import dask
    from distributed import LocalCluster

    options = {"threads_per_worker": 1, "processes": True, "host": "127.0.0.1"}
    # no dashboard, which needs bokeh, and no fixed port
    options |= {"dashboard_address": "127.0.0.1:0", "scheduler_kwargs": {"dashboard": False}}
    # on a busy machine, restarting a dead worker can exceed Dask's default of 15 s
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "15 minutes"}),
        LocalCluster(n_workers=workers, silence_logs=logging.CRITICAL, **options) as cluster,
    ):
        yield cluster


class PostgresServer:
    """A running server on a free port, started as ``postgres`` because it refuses root."""

    def __init__(self):
        # Of Debian.
        path = ":".join([os.environ["PATH"], *map(str, Path("/usr/lib/postgresql").glob("*/bin"))])
        if (initdb := shutil.which("initdb", path=path)) is None:
            skip_or_fail("PostgreSQL is not installed (Debian: apt-get install postgresql)")
        self._bin = Path(initdb).resolve().parent
        root = os.geteuid() == 0
        self._as = {"user": "postgres", "group": "postgres", "extra_groups": []} if root else {}
        # Not below pytest's folder, which nobody else may enter; and the path of a socket is short.
        self.folder = Path(tempfile.mkdtemp(prefix="xlarank-pg-"))
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        (self.folder / "password").write_text(PASSWORD + "\n")
        for path in (self.folder, self.folder / "password") if root else ():
            shutil.chown(path, "postgres", "postgres")
        options = "--pgdata=data --username=tuner --pwfile=password --auth-local=trust"
        options += " --auth-host=scram-sha-256 --encoding=UTF8 --no-sync --no-locale"
        self._run("initdb", *options.split())
        self.start()

    def _run(self, program, *arguments):
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True, **self._as}
        pipes |= {"stderr": subprocess.STDOUT, "timeout": 120}
        done = subprocess.run([self._bin / program, *arguments], cwd=self.folder, **pipes)
        assert done.returncode == 0, f"{program}: {done.stdout}"

    def start(self):
        options = f"-c listen_addresses=127.0.0.1 -p {self.port} -k {self.folder} -c fsync=off"
        # its log goes to a file: a pipe would stay open as long as the server runs
        self._run("pg_ctl", "--pgdata=data", "--log=log", "-w", "-o", options, "start")

    def stop(self):
        self._run("pg_ctl", "--pgdata=data", "-w", "-m", "immediate", "stop")

    def create(self, database):
        self._run("createdb", "-h", str(self.folder), "-p", str(self.port), "-U", "tuner", database)

    def address(self, database, password=PASSWORD):
        """The address of a database over the network, with a password."""
        user = f"tuner:{quote(password, safe='')}"
        return f"postgresql+psycopg://{user}@127.0.0.1:{self.port}/{database}"


@pytest.fixture(scope="session")
def postgres_server():
    """A running PostgreSQL server; skips the test, visibly, if none is installed."""
    server = PostgresServer()
    yield server
    server.stop()
    shutil.rmtree(server.folder)


@pytest.fixture
def database(postgres_server, request):
    """The name of a new database of the server."""
    name = f"tuning{zlib.crc32(request.node.nodeid.encode()):08x}"
    postgres_server.create(name)
    return name
