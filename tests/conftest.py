"""Shared by all tests: the hypothesis profile, files to write, and the real data where it is present."""

import os
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.graphs import FEW, save_npz

# No deadline: the time of one example says more about the machine than about the code.
# Derandomized: a red run must be red again on the next machine.
slow = [HealthCheck.too_slow]
settings.register_profile("xlarank", deadline=None, derandomize=True, print_blob=True, max_examples=60,
                          suppress_health_check=slow)  # fmt: skip
settings.register_profile("quick", settings.get_profile("xlarank"), max_examples=FEW)

# Tables are as wide as the tests expect, whatever terminal (or test worker) they run in.
os.environ.pop("COLUMNS", None)

#: Root of a tree of real TpuGraphs files.
TEST_DATA = "XLARANK_TEST_DATA"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--exhaustive", action="store_true", help="also run what is marked exhaustive")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked exhaustive, whatever -m says."""
    if not config.option.exhaustive:
        left_out = [item for item in items if item.get_closest_marker("exhaustive")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_configure(config: pytest.Config) -> None:
    """Without the slow tests random examples are fewer too."""
    settings.load_profile("quick" if "not slow" in config.option.markexpr else "xlarank")


@pytest.fixture(scope="session", autouse=True)
def home_of_secrets(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a user's home keeps for xlarank is kept in a folder of the tests, by their child processes, too."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture
def graph_file(tmp_path: Path) -> Callable[..., Path]:
    """Write arrays to ``<name>.npz`` in a fresh folder and return the path."""

    def write(arrays: Mapping[str, Any], name: str = "graph", *, compressed: bool = True) -> Path:
        return save_npz(tmp_path / f"{name}.npz", arrays, compressed=compressed)

    return write


@pytest.fixture(scope="session")
def next_path(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """A new path at every call: what a hypothesis test needs, whose fixtures are shared by all examples."""
    folder = tmp_path_factory.mktemp("examples")
    numbers = count()
    return lambda: folder / f"example{next(numbers)}.npz"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Root of the real files named by the environment; skips the test when there is none."""
    named = os.environ.get(TEST_DATA)
    if not named:
        pytest.skip(f"{TEST_DATA} is not set: no real TpuGraphs files to read")
    return Path(named)


@pytest.fixture(autouse=True)
def _no_data_root_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests must not depend on where the developer keeps the dataset: the embedded sample it is."""
    nowhere = Path(os.devnull) / "absent"
    monkeypatch.delenv("XLARANK_DATA", raising=False)
    monkeypatch.setattr("xlarank.data.collection.KAGGLE", nowhere)
    monkeypatch.setattr("xlarank.data.collection.HOME", nowhere)
