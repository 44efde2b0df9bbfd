"""The whole job on a few graphs, done once, and copies of it for tests that write."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.shell import FILES, LAYOUT, SAMPLE, Outcome, here
from tests.pipelines.trees import graph_path


@dataclass(frozen=True)
class Job:
    """The whole job, done once from a folder that is not the repository."""

    folder: Path
    tree: Path
    work: Path
    outcomes: dict[str, Outcome]


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("elsewhere")
    tree = folder / "tree"
    for collection, splits in FILES.items():
        for split, names in splits.items():
            for name in names:
                path = graph_path(tree, collection, split, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(graph_path(SAMPLE, collection, split, name), path)
    commands: tuple[list[object], ...] = (
        ["info", "--data-root", "tree", "--json", "info.json"],
        ["build-features", "--data-root", "tree", "--tier", "fast"],
        ["tune", "--trials", "2", "--rounds", "10", "--threads", "1"],
        ["train", "--seeds", "1", "--rounds", "30", "--threads", "1"],
        ["evaluate", "--json", "scores.json"],
        ["submit", "--out", "out/submission.csv"],
        ["rank", graph_path(tree, LAYOUT, "valid", "mlp__a"), "--top", "3", "--json", "rank.json"],
    )
    with contextlib.chdir(folder):
        outcomes = {str(words[0]): here(*words) for words in commands}
    return Job(folder, tree, folder / "work", outcomes)


@pytest.fixture
def trained(job: Job, tmp_path: Path) -> Path:
    return Path(shutil.copytree(job.work, tmp_path / "trained"))


@pytest.fixture
def tree(job: Job, tmp_path: Path) -> Path:
    return Path(shutil.copytree(job.tree, tmp_path / "tree"))
