"""JSON of wrong types in the workspace: one clear error, never a traceback."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.trees import LAYOUT, data_root
from xlarank.data.collection import Collection
from xlarank.data.errors import XlarankError
from xlarank.data.workspace import Workspace
from xlarank.pipelines.build_features import BuildRequest, build_features
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.submit import submit

PLACE = Collection.parse(LAYOUT)
VALUES = (None, 3, -1.5, True, "text", [], {}, [[]], {"a": {}}, ["x"])


def spoilt(value: Any, rng: random.Random) -> Any:
    """One entry somewhere within replaced by something of another type, or removed."""
    places: list[tuple[Any, Any]] = []

    def walk(inside: Any) -> None:
        for key in list(inside) if isinstance(inside, dict) else range(len(inside)):
            places.append((inside, key))
            if isinstance(inside[key], dict | list):
                walk(inside[key])

    walk(value)
    inside, key = rng.choice(places[:40] + rng.sample(places, min(40, len(places))))
    if rng.random() < 0.2:
        del inside[key]
    else:
        inside[key] = rng.choice(VALUES)
    return value


def files(work: Path) -> Iterator[tuple[Path, Callable[[], object], int]]:
    """File, what reads it, and how many edits are tried."""
    workspace = Workspace(work)
    out = work / "out.csv"
    yield workspace.model(PLACE) / "model.json", lambda: submit(workspace, out, collections=[LAYOUT]), 30
    yield (
        workspace.features(PLACE, "valid") / "manifest.json",
        lambda: evaluate(workspace, collections=[LAYOUT]),
        20,
    )
    (state,) = list(workspace.model(PLACE).rglob("seed-0/ranker.json"))
    yield state, lambda: submit(workspace, out, collections=[LAYOUT]), 15


@pytest.mark.slow
def test_every_reader_of_the_workspace_refuses_or_works(trained: Path) -> None:
    rng = random.Random(0)
    for path, read, times in files(trained):
        whole, refused = path.read_text(), 0
        for _ in range(times):
            path.write_text(json.dumps(spoilt(json.loads(whole), rng)))
            try:
                read()
            except XlarankError as error:
                assert "\n" not in str(error)
                refused += 1
        path.write_text(whole)
        assert refused > times / 3, path
        read()


def test_a_file_that_is_something_else(trained: Path, tree: Path) -> None:
    workspace = Workspace(trained)
    manifest, card = workspace.features(PLACE, "test") / "manifest.json", workspace.model(PLACE) / "model.json"
    for path in (manifest, card):
        whole = path.read_text()
        for text in ("[]", "3", "null", '"text"', "{}", "[" * 100_000, "{", ""):
            path.write_text(text)
            with pytest.raises(XlarankError):
                submit(workspace, trained / "out.csv", collections=[LAYOUT])
        path.write_text(whole)
    manifest.write_text("{")
    build_features(data_root(tree), workspace, BuildRequest(collections=[LAYOUT]))  # mends the manifest
