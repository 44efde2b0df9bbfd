"""Freeze columns of a few real files: ``python -m tests.features.make_snapshots`` in the root of the repository.

`XLARANK_TEST_DATA` names a tree of real TpuGraphs files. Each snapshot keeps all columns of a handful of
distinct configurations. Run it after a change that is meant to move numbers, look at which columns moved
(it prints them), and say in the commit why.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.conftest import TEST_DATA
from xlarank.data.graph import read_graph
from xlarank.features.assemble import assemble

FOLDER = Path(__file__).parent / "snapshots"
#: Snapshot -> place of the file below ``npz``.
PLACES = {
    "layout_train": "layout/xla/random/train/openai_v0_rnn_optimized",
    "layout_valid": "layout/xla/random/valid/unet_3d.4x4.bf16",
    "layout_alexnet": "layout/xla/default/train/alexnet_train_batch_32",
    "layout_attention": "layout/nlp/random/test/23559853d9702baaaacbb0c83fd32266",
    "tile_train": "tile/xla/train/alexnet_train_batch_32_4ae805e53b8d2b8a",
    "tile_test": "tile/xla/test/0abaea94d7b0a1c1f1b0bd23b73ce38c",
}
#: Distinct configurations kept, evenly spread over a graph's.
ROWS = 6


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Some rows of one graph.

    Attributes:
        distinct: number of distinct configurations of the graph.
        at: ``(rows,)`` which of them are kept.
        columns: name -> ``(rows,)`` float32; columns of the graph repeat their one value.
    """

    distinct: int
    at: np.ndarray
    columns: dict[str, np.ndarray]


def take(path: Path) -> Snapshot:
    """The snapshot of a file as the code makes it now."""
    features = assemble(read_graph(path))
    at = np.unique(np.linspace(0, len(features) - 1, ROWS).astype(np.int64))
    return Snapshot(len(features), at, dict(zip(features.columns, features.matrix(at).T, strict=True)))


def write(name: str, snapshot: Snapshot) -> None:
    FOLDER.mkdir(exist_ok=True)
    np.savez_compressed(
        FOLDER / f"{name}.npz",
        distinct=snapshot.distinct,
        at=snapshot.at,
        names=np.array("\n".join(snapshot.columns).encode()),
        values=np.stack(list(snapshot.columns.values())),
    )


def read(name: str) -> Snapshot:
    with np.load(FOLDER / f"{name}.npz") as archive:
        names = archive["names"].item().decode().split("\n")
        columns = dict(zip(names, archive["values"], strict=True))
        return Snapshot(int(archive["distinct"]), archive["at"], columns)


def moved(before: Snapshot, after: Snapshot) -> list[str]:
    """Names of the columns that differ, are new or are gone."""

    def same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
        both = one is not None and other is not None and one.shape == other.shape
        return both and np.allclose(one, other, rtol=1e-5, atol=1e-6)

    names = before.columns.keys() | after.columns.keys()
    return sorted(name for name in names if not same(before.columns.get(name), after.columns.get(name)))


def main() -> None:
    named = os.environ.get(TEST_DATA)
    if not named:
        sys.exit(f"{TEST_DATA} is not set; expected the root of real TpuGraphs files")
    for name, place in PLACES.items():
        snapshot = take(Path(named) / "npz" / f"{place}.npz")
        before = read(name) if (FOLDER / f"{name}.npz").exists() else None
        write(name, snapshot)
        print(f"{name}: {len(snapshot.at)} rows x {len(snapshot.columns)} columns")
        if before is not None:
            print("  moved: " + (", ".join(moved(before, snapshot)) or "nothing"))


if __name__ == "__main__":
    main()
