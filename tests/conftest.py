"""Hypothesis profiles, options, and fixtures for files and real data."""

import contextlib
import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

from tests.graphs import FEW, save_npz

# No deadline, which would depend on the machine; derandomized, so that failures are reproducible.
REPRODUCIBLE = {"deadline": None, "derandomize": True, "print_blob": True}
settings.register_profile(
    "xlarank", max_examples=60, suppress_health_check=[HealthCheck.too_slow], **REPRODUCIBLE
)
settings.register_profile("quick", settings.get_profile("xlarank"), max_examples=FEW)

# The width of tables must not depend on the terminal.
os.environ.pop("COLUMNS", None)

#: Root of a tree of real TpuGraphs files.
TEST_DATA = "XLARANK_TEST_DATA"
# Tests run in another folder, where a relative path means something else.
for name in (TEST_DATA, "XLARANK_TEST_HLO"):
    if name in os.environ:
        os.environ[name] = str(Path(os.environ[name]).resolve())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--exhaustive", action="store_true", help="also run tests marked exhaustive")


def pytest_configure(config: pytest.Config) -> None:
    marked = config.option.markexpr
    settings.load_profile("quick" if "not slow" in marked else "xlarank")
    if not config.option.exhaustive:
        config.option.markexpr = f"({marked}) and not exhaustive" if marked else "not exhaustive"


@pytest.fixture(scope="session", autouse=True)
def _elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run tests outside the repository, so that none finds or changes the workspace in it."""
    with contextlib.chdir(tmp_path_factory.mktemp("elsewhere")):
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_collection_of_garbage() -> Iterator[None]:
    """Build layouts without it: in the process of all tests it takes longer than a graph."""
    with mock.patch("xlarank.pipelines.support.building.gc"):
        yield


@pytest.fixture
def graph_file(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes arrays to ``<name>.npz`` and returns the path."""
    return lambda arrays, name="graph", **options: save_npz(
        tmp_path / f"{name}.npz", arrays, **options
    )


@pytest.fixture(scope="session")
def next_path(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Return a new path per call, for hypothesis tests, whose examples share their fixtures."""
    folder = tmp_path_factory.mktemp("examples")
    numbers = count()
    return lambda: folder / f"example{next(numbers)}.npz"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the root of the real files, or skip the test."""
    if not (root := os.environ.get(TEST_DATA)):
        pytest.skip(f"{TEST_DATA} is not set: no real TpuGraphs files to read")
    return Path(root)


@pytest.fixture(autouse=True)
def _no_data_root_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the embedded sample the default data root, regardless of the developer's data."""
    monkeypatch.delenv("XLARANK_DATA", raising=False)
    for name in ("KAGGLE", "HOME"):
        monkeypatch.setattr(f"xlarank.data.collection.{name}", Path(os.devnull) / "absent")
