"""Columns as they were frozen: of random programs, of files of the sample, and of real files.

A snapshot holds a handful of rows of each graph. After a change that is meant to move numbers or to
add columns, raise `xlarank.features.catalogue.COLUMNS_VERSION`;
``python -m tests.features.test_snapshots`` then freezes them anew and prints which columns moved.
Real files are those that `XLARANK_TEST_DATA` names; without it, their snapshots stay as they are.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import TEST_DATA
from tests.features.helpers import SAMPLE, fitting_graph, fitting_kernel, graph_of, load
from tests.graphs import Arrays
from xlarank.data.graph import Graph, read_graph
from xlarank.features.assembly import assemble
from xlarank.features.catalogue import COLUMNS_VERSION

FOLDER = Path(__file__).parent / "snapshots"
#: `COLUMNS_VERSION` of the snapshots.
VERSION = FOLDER / "version.txt"
#: Snapshot -> place of the real file below ``npz``.
REAL = {
    "layout_train": "layout/xla/random/train/openai_v0_rnn_optimized",
    "layout_valid": "layout/xla/random/valid/unet_3d.4x4.bf16",
    "layout_alexnet": "layout/xla/default/train/alexnet_train_batch_32",
    "layout_attention": "layout/nlp/random/test/23559853d9702baaaacbb0c83fd32266",
    "tile_train": "tile/xla/train/alexnet_train_batch_32_4ae805e53b8d2b8a",
    "tile_test": "tile/xla/test/0abaea94d7b0a1c1f1b0bd23b73ce38c",
}
#: Files of the sample: small layouts with many kinds of configurable nodes, and tiles of many kinds
#: of kernels.
_LAYOUTS = "default/train/dlrm__a random/train/gan__c random/valid/mlp__a default/train/densenet__b"
SAMPLE_KERNELS = (
    "train/matmul__a train/matmul_bias_relu__b train/bmm__c train/conv3x3__a "
    "train/maxpool__a test/transpose__b "
    "train/conv3x3_bias_relu__a train/dwconv3x3__b train/reduce_mid__b valid/bmm_tb__a "
    "valid/expsum__a test/swish__a"
)
_TPU = (
    "batched concatenations convgradients convolutions dense llama normalisations pointwise "
    "products reductions"
)


def sample_tiles() -> list[Path]:
    tpu = (min(SAMPLE.glob(f"tile/tpu-estimate/train/{family}__*.npz")) for family in _TPU.split())
    return [*(SAMPLE / f"tile/cpu/{place}.npz" for place in SAMPLE_KERNELS.split()), *tpu]


#: Distinct configurations kept, evenly spread over a graph's.
ROWS = 6


def snapshot(graphs: Iterable[Graph], hardware: str | None = None) -> Arrays:
    """Some rows of graphs as the code makes them now: ``values`` is ``(columns, rows)``."""
    distinct = []
    values = []
    names = [""]
    for rows in (assemble(graph, hardware) for graph in graphs):
        at = np.unique(np.linspace(0, len(rows) - 1, ROWS).astype(np.int64))
        matrix = rows.matrix(at)
        names = rows.columns
        distinct.append(len(rows))
        values.append(matrix)
    packed = np.array("\n".join(names).encode())
    return {"distinct": np.array(distinct), "names": packed, "values": np.concatenate(values).T}


def sample_layouts(places: str) -> Iterable[Graph]:
    return (read_graph(SAMPLE / f"layout/cpu/{place}.npz") for place in places.split())


#: Snapshot -> small graphs.
SMALL: dict[str, Callable[[], Arrays]] = {
    "programs": lambda: snapshot(map(graph_of, map(fitting_graph, range(40)))),
    "kernels": lambda: snapshot(map(graph_of, map(fitting_kernel, range(60)))),
    "sample_layouts": lambda: snapshot(sample_layouts(_LAYOUTS)),
    "relayouts": lambda: snapshot(sample_layouts(_LAYOUTS), "nvidia-h200"),
    "sample_tiles": lambda: snapshot(map(read_graph, sample_tiles())),
}


def now(name: str, root: Path) -> Arrays:
    """A snapshot by the present code, of small graphs or of a file below the root of real ones."""
    if name in SMALL:
        return SMALL[name]()
    return snapshot([read_graph(root / "npz" / f"{REAL[name]}.npz")])


def moved(before: Arrays, after: Arrays) -> list[str]:
    """Columns that are new, gone or different; all if the number of rows differs."""
    names = [arrays["names"].item().decode().split("\n") for arrays in (before, after)]
    old = dict(zip(names[0], before["values"], strict=True))
    new = dict(zip(names[1], after["values"], strict=True))
    if not np.array_equal(before["distinct"], after["distinct"]):
        return sorted(old)
    changed = old.keys() ^ new.keys()
    for name in old.keys() & new.keys():
        if not np.allclose(new[name], old[name], rtol=1e-5, atol=1e-6):
            changed.add(name)
    return sorted(changed)


@pytest.mark.parametrize("name", [*SMALL, *REAL])
def test_columns_are_as_they_were_frozen(name, request):
    root = request.getfixturevalue("real_data") if name in REAL else FOLDER
    assert moved(load(FOLDER / f"{name}.npz"), now(name, root)) == [], "see the top of this file"


def test_snapshots_are_of_the_current_version():
    assert int(VERSION.read_text()) == COLUMNS_VERSION, "freeze them anew"


def freeze(root: str) -> None:
    """Write snapshots of the current code; refuse columns that moved in the same version."""
    made = {name: now(name, Path(root)) for name in (*SMALL, *(REAL if root else ()))}
    for name, arrays in made.items():
        path = FOLDER / f"{name}.npz"
        changed = moved(load(path), arrays) if path.exists() else []
        print(f"{name}: moved {', '.join(changed) or 'nothing'}")
        if changed and int(VERSION.read_text()) == COLUMNS_VERSION:
            raise SystemExit("raise COLUMNS_VERSION in features/catalogue.py first")
    for name, arrays in made.items():
        np.savez_compressed(FOLDER / f"{name}.npz", **arrays)
    VERSION.write_text(f"{COLUMNS_VERSION}\n")


if __name__ == "__main__":
    freeze(os.environ.get(TEST_DATA, ""))
