"""Small data trees that can be learned from in a second, and helpers of the tests of pipelines."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from tests.graphs import (
    LAYOUT_PROGRAM,
    TILE_PROGRAM,
    Arrays,
    layout_row,
    program_arrays,
    save_npz,
    tile_row,
)
from xlarank.data.collection import Collection
from xlarank.data.workspace import Workspace
from xlarank.features import catalogue
from xlarank.features.rows import GraphRows
from xlarank.features.store import each_graph
from xlarank.models.model import Model
from xlarank.pipelines.build_features import BuildReport, build_features
from xlarank.pipelines.support.progress import set_display
from xlarank.pipelines.train import TrainResult, train

LAYOUT = "layout:cpu:random"
TILE = "tile:cpu"
LAYOUTS = Collection.parse(LAYOUT)
TILES = Collection.parse(TILE)

#: What the convolution and the reshape of `LAYOUT_PROGRAM` can take; later in the list is slower.
_CONVOLUTION = (
    layout_row(output=(3, 2, 1, 0), input=(3, 2, 1, 0), kernel=(3, 2, 1, 0)),
    layout_row(output=(3, 0), input=(3, 0), kernel=(3, 2)),
    layout_row(),
    layout_row(output=(0, 3), input=(3, 0)),
    layout_row(output=(1, 3), input=(1, 3), kernel=(0, 1)),
    layout_row(output=(0, 1, 2, 3), input=(0, 1, 2, 3), kernel=(0, 1, 2, 3)),
)
_RESHAPE = (
    layout_row(output=(1, 0), input=(3, 2, 1, 0)),
    layout_row(),
    layout_row(output=(0, 1)),
    layout_row(output=(0, 1), input=(0, 1, 2, 3)),
)
_CHOICES = tuple(product(range(len(_CONVOLUTION)), range(len(_RESHAPE))))
_TILE_CHOICES = tuple(product((8, 32, 64, 256), (16, 128, 1024), (64, 512)))


def layout_graph(seed: int, *, configs: int = 24, labelled: bool = True) -> Arrays:
    """Return a layout graph; the last two configurations repeat the first, 1 ns slower each."""
    picked = np.random.default_rng(seed).permutation(len(_CHOICES))[: configs - 2].tolist()
    chosen = [_CHOICES[i] for i in [*picked, picked[0], picked[0]]]
    times = [20_000_000 + seed + 3_000_000 * c + 1_000_000 * r for c, r in chosen]
    runtime = np.array(times, np.int64)
    runtime[-2:] += (1, 2)
    return {
        **program_arrays(LAYOUT_PROGRAM),
        "node_splits": np.array([[0, len(LAYOUT_PROGRAM)]], np.int64),
        "node_config_ids": np.array([2, 4], np.int64),
        "node_config_feat": np.array(
            [(_CONVOLUTION[c], _RESHAPE[r]) for c, r in chosen], np.float32
        ),
        "config_runtime": runtime * labelled,
    }


def tile_graph(seed: int, *, configs: int = 24, labelled: bool = True) -> Arrays:
    """Return a tile graph; with four or more configurations the last repeats the first."""
    picked = np.random.default_rng(seed).permutation(len(_TILE_CHOICES))[:configs].tolist()
    if configs > 3:
        picked[-1] = picked[0]
    chosen = [_TILE_CHOICES[i] for i in picked]
    runtime = [100_000 * 1024 // (rows * columns) + depth + 7 for rows, columns, depth in chosen]
    return {
        **program_arrays(TILE_PROGRAM),
        "config_feat": np.stack(
            [tile_row(output=(r, c), kernel=(depth,)) for r, c, depth in chosen]
        ),
        "config_runtime": np.array(runtime, np.int64) * labelled,
        "config_runtime_normalizers": np.full(configs, 10_000 + seed, np.int64),
    }


def identical(arrays: Arrays) -> Arrays:
    """Repeat the first configuration of a graph."""
    table = "config_feat" if "config_feat" in arrays else "node_config_feat"
    return {**arrays, table: np.repeat(arrays[table][:1], len(arrays[table]), axis=0)}


def even(arrays: Arrays) -> Arrays:
    """Give all configurations of a graph the same cost."""
    equal = np.full_like(arrays["config_runtime"], 10_000_000)
    return {**arrays, "config_runtime": 3 * arrays.get("config_runtime_normalizers", equal)}


#: Collection -> split -> graphs. Families: three to learn from, others held out.
TREE: Mapping[str, Mapping[str, Sequence[str]]] = {
    LAYOUT: {
        "train": ("alpha__a", "alpha__b", "beta__a", "beta__b", "gamma__a"),
        "valid": ("delta__a", "delta__b"),
        "test": ("omega__a", "omega__b"),
    },
    TILE: {
        "train": ("conv__a", "conv__b", "dot__a", "tanh__a"),
        "valid": ("pool__a",),
        "test": ("sort__a", "sort__b"),
    },
}
FILES = sum(len(names) for splits in TREE.values() for names in splits.values())


def graph_path(root: Path, collection: str, split: str, name: str) -> Path:
    return root / "npz" / Path(*collection.split(":")) / split / f"{name}.npz"


def write_tree(root: Path, tree: Mapping[str, Mapping[str, Sequence[str]]] = TREE) -> Path:
    """Write graphs of a tree and return its root; test graphs have no labels."""
    graphs = [
        (c, split, name)
        for c, splits in tree.items()
        for split, names in splits.items()
        for name in names
    ]
    for number, (collection, split, name) in enumerate(graphs):
        make = layout_graph if collection.startswith("layout") else tile_graph
        save_npz(graph_path(root, collection, split, name), make(number, labelled=split != "test"))
    return root


def build(root: Path, workspace: Path, **chosen: Any) -> BuildReport:
    """Build features, in one process by default."""
    return build_features(root, workspace, **{"jobs": 1, **chosen})


def build_fewer_columns(root: Path, workspace: Path, **chosen: Any) -> None:
    """Build features without listwise columns, as another version of the columns would."""
    blocks = tuple(block for block in catalogue.BLOCKS if not block.listwise)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "BLOCKS", blocks)
        build(root, workspace, **chosen)


def train_models(
    workspace: Path, *, may_be_equal: bool = False, **chosen: Any
) -> list[TrainResult]:
    """Train models, with one seed and one thread; scores of few rows ``may_be_equal``."""
    settings = {"seeds": 1, "threads": 1, **chosen}
    with pytest.MonkeyPatch.context() as patch:
        if may_be_equal:
            check = "xlarank.pipelines.train._require_scores_that_differ"
            patch.setattr(check, lambda training, model: None)
        return train(workspace, **settings)


def stored(workspace: Path, collection: str = LAYOUT, split: str = "train") -> dict[str, GraphRows]:
    graphs = each_graph(Workspace(workspace), Collection.parse(collection), split)
    return {graph.name: graph for graph in graphs}


def model_of(workspace: Path, collection: str = LAYOUT) -> Model:
    return Model.load(Workspace(workspace).model(Collection.parse(collection)))


def scores_by_model(workspace: Path, graph: GraphRows, collection: str = LAYOUT) -> np.ndarray:
    """Return the scores of all configurations of a graph by the model of a collection."""
    return model_of(workspace, collection).score(graph)[graph.group]


def edit_json(path: Path, **changes: Any) -> None:
    """Replace top-level values of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), "utf-8")


def contents(workspace: Path, pattern: str = "*") -> dict[str, bytes]:
    """Return the content of every file of a workspace by its relative path."""
    files = (path for path in workspace.rglob(pattern) if path.is_file())
    return {str(path.relative_to(workspace)): path.read_bytes() for path in files}


def die(*_: object) -> None:
    """End the process as the system does that kills a worker while it builds a graph."""
    os._exit(9)


class Listener:
    """Display that records the jobs of a block, and at a step interrupts it or calls ``act``."""

    def __init__(self, stop_at: int = 0, act: Callable[[], object] | None = None) -> None:
        self.jobs = list[tuple[str, int]]()
        self.notes = list[str]()
        self.ended = 0
        self._stop_at = stop_at
        self._act = act

    def __enter__(self) -> Self:
        set_display(self)
        return self

    def __exit__(self, *_: object) -> None:
        set_display(None)

    @contextmanager
    def __call__(self, what: str, total: int) -> Iterator[Callable[..., None]]:
        assert self.ended == len(self.jobs), "jobs do not nest"
        self.jobs.append((what, total))
        try:
            yield self._step
        finally:
            self.ended += 1

    def _step(self, note: str = "", more: int = 0) -> None:
        assert self.ended == len(self.jobs) - 1, "a step belongs to a job"
        self.notes.append(note)
        what, total = self.jobs[-1]
        self.jobs[-1] = (what, total + more)
        if len(self.notes) == self._stop_at:
            if self._act is None:
                raise KeyboardInterrupt
            self._act()


def read_submission(path: Path) -> dict[str, list[int]]:
    """Return the configurations that a submission lists, by id."""
    with path.open(newline="") as stream:
        header, *lines = csv.reader(stream)
    assert header == ["ID", "TopConfigs"]
    assert len({row_id for row_id, _ in lines}) == len(lines), "every id once"
    return {row_id: [int(entry) for entry in listed.split(";")] for row_id, listed in lines}
