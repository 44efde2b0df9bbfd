"""Files of a workspace that are damaged, edited or of another type: one clear error, and nobody waits."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pipelines.trees import LAYOUT, TREE, build, stored
from xlarank.cli import record
from xlarank.data.collection import Collection
from xlarank.data.errors import FeatureStoreError, XlarankError
from xlarank.data.submission import read_submission
from xlarank.data.workspace import Workspace
from xlarank.features.recipe import Source
from xlarank.features.store import each_graph, read_instances, read_manifest, read_rows
from xlarank.models.trained import model_of
from xlarank.models.validation.best_params import load_best
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.submit import submit
from xlarank.pipelines.support.fitting import TrainRequest
from xlarank.pipelines.train import train

FLIPS = {False: 20, True: 120}
PLACE = Collection.parse(LAYOUT)
GRAPH = PLACE, "train", "alpha__a"


@pytest.mark.parametrize("of", ["rows", "instances"])
def test_flipped_bits_are_seen_and_mended_by_building(
    tree: Path, built: Path, of: str, request: pytest.FixtureRequest
) -> None:
    work = Workspace(built)
    path = work.graph_rows(*GRAPH) if of == "rows" else work.graph_instances(*GRAPH)
    manifest = read_manifest(work, PLACE, "train")
    assert manifest is not None
    source = Source(**manifest.graphs["alpha__a"]["source"])

    def read() -> object:
        return read_rows(path) if of == "rows" else read_instances(path, manifest.recipe, source)

    whole = path.read_bytes()
    flips = FLIPS[request.config.option.exhaustive]
    bits = np.random.default_rng(0).integers(8 * len(whole), size=flips)
    for bit in [*bits, 4 * len(whole)]:  # the last: a value, not the footer
        spoilt = bytearray(whole)
        spoilt[bit // 8] ^= 1 << int(bit % 8)
        path.write_bytes(spoilt)
        with pytest.raises(FeatureStoreError, match="cannot be read"):
            read()
    if of == "rows":
        with pytest.raises(FeatureStoreError, match="run build-features again"):
            train(work, TrainRequest(collections=[LAYOUT], seeds=1, rounds=5, threads=1))
    for harm in (path.read_bytes(), None, b"", whole[: len(whole) // 2]):
        path.unlink() if harm is None else path.write_bytes(harm)
        with pytest.raises(FeatureStoreError, match="cannot be read"):
            read()
        (report,) = build(tree, built, collections=[LAYOUT], splits=["train"]).splits
        assert (report.built, report.kept) == (1, len(stored(built)) - 1)
        assert path.read_bytes() == whole
    read()


# JSON of wrong types in the workspace: one clear error, never a traceback.

VALUES = (None, 3, -1.5, True, "text", [], {}, [[]], {"a": {}}, ["x"])


def spoilt(value: Any, rng: random.Random) -> Any:
    """One entry somewhere within replaced by something of another type, or removed."""
    inside, deeper = value, True
    while deeper:
        key = rng.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
        deeper = bool(inside[key]) and isinstance(inside[key], dict | list) and rng.random() < 0.6
        inside = inside[key] if deeper else inside
    if rng.random() < 0.2:
        del inside[key]
    else:
        inside[key] = rng.choice(VALUES)
    return value


@pytest.mark.slow
def test_every_reader_of_the_workspace_refuses_or_works(trained: Path, request: pytest.FixtureRequest) -> None:
    rng, workspace = random.Random(0), Workspace(trained)
    model, manifest = workspace.model(PLACE), workspace.features(PLACE, "valid") / "manifest.json"
    (state,) = model.rglob("seed-0/ranker.json")

    def ranked() -> object:
        return submit(workspace, trained / "out.csv", collections=[LAYOUT])

    for path, read, times in (
        (model / "model.json", ranked, 30),
        (manifest, lambda: evaluate(workspace, collections=[LAYOUT]), 20),
        (state, ranked, 15),
    ):
        whole, refused = path.read_text(), 0
        times = times if request.config.option.exhaustive else 5
        for _ in range(times):
            path.write_text(json.dumps(spoilt(json.loads(whole), rng)))
            try:
                read()
            except XlarankError as error:
                assert "\n" not in str(error)
                refused += 1
        path.write_text(whole)
        assert refused > times / 4, path
        read()


# Links and devices among the files of a workspace: nothing is read from a device or written through a link.


def test_only_regular_files_are_read_and_building_mends_a_manifest(tree: Path, trained: Path) -> None:
    """No pipe is waited for: what a device stands for here."""
    workspace = Workspace(trained)
    model = workspace.model(PLACE)
    (graph, *_) = each_graph(workspace, PLACE, "train")
    readers: list[tuple[Path, Callable[[], object]]] = [
        (next(model.glob("boosters-*/seed-0")) / "device", lambda: model_of(workspace, PLACE)),
        (model / "model.json", lambda: model_of(workspace, PLACE)),
        (workspace.study(PLACE) / "best-lambdarank.json", lambda: load_best(workspace.study(PLACE), "lambdarank")),
        (workspace.graph_instances(PLACE, "train", graph.name), lambda: graph.instances.value),  # type: ignore[union-attr]
        (workspace.graph_rows(PLACE, "train", graph.name), lambda: list(each_graph(workspace, PLACE, "train"))),
        (workspace.features(PLACE, "train") / "manifest.json", lambda: stored(trained)),
        (trained / "submission.csv", lambda: read_submission(trained / "submission.csv")),
    ]
    for path, read in readers:
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.devnull)
        with pytest.raises(XlarankError, match="not a regular file"):
            read()
    manifest = workspace.features(PLACE, "test") / "manifest.json"
    manifest.write_text("[" * 100_000)
    with pytest.raises(FeatureStoreError, match=r"manifest\.json cannot be read"):
        stored(trained, split="test")
    build(tree, trained, collections=[LAYOUT], splits=["test"])
    assert set(stored(trained, split="test")) == set(TREE[LAYOUT]["test"])


def test_the_record_of_commands_follows_no_link(tmp_path: Path) -> None:
    runs = tmp_path / "reports" / record.RUNS
    runs.parent.mkdir()
    (tmp_path / "precious").write_text("kept")
    runs.symlink_to(tmp_path / "precious")
    record.Run(workspace=tmp_path).end(0)
    assert (tmp_path / "precious").read_text() == "kept"
