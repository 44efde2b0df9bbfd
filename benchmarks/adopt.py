"""Take graphs and kernels that ``collect`` labelled into the embedded sample.

    python -m benchmarks.adopt FOLDER [--sample data/sample] [--least 8]

``FOLDER`` is what ``collect --out`` got. A graph is taken into the split it was collected for and the search that
the sample calls it by (``evolve`` is ``default``), without what only a teacher of single operations reads, which is
most of the file. The search ``tied`` is that of ``collect --search random --tie rule --effort -1``: rename its
folder first, and pass ``--least 4``. Left out, and named: graphs with fewer than ``--least`` distinct labels, which
order little, and all of families that are held out for scoring. What the sample has already stays as it is.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from xlarank.data.collection import GraphFile, graph_files
from xlarank.data.family import program_family
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.root import SAMPLE, find_data_root
from xlarank.data.writing import write_graph

#: Kept for judging: withheld families, and those of the valid split.
JUDGES = frozenset({"resnet", "resnet_bn", "axial", "gnet", "gru", "crossattn", "unet", "mlp"})
#: Measured on a TPU in Google's files, which judge: nothing that ships learns from these families.
MEASURED = frozenset({"alexnet"})
_SEARCHES = {"random": "random", "evolve": "default", "tied": "tied"}
LEAST = 8
#: Of the file, in the format of TpuGraphs.
_ARRAYS = (
    "node_feat",
    "node_opcode",
    "edge_index",
    "node_splits",
    "node_config_ids",
    "node_config_feat",
    "config_runtime",
)


def why_left_out(graph: LayoutGraph, name: str, least: int) -> str:
    """Why a graph is not taken, in words; empty where it is."""
    if program_family(name) in JUDGES:
        return "its family judges"
    distinct = len(np.unique(graph.runtime))
    return f"{distinct} distinct labels" if distinct < least else ""


def adopt_tiles(file: GraphFile, sample: Path) -> str:
    """Copy a kernel's file; why it is not taken, in words, empty where it is."""
    if file.family in JUDGES | MEASURED:
        return "its family judges"
    folder = sample / "npz" / Path(*file.collection.parts)
    place = folder / file.split / f"{file.name}.npz"
    digest = file.name.rpartition("_")[2]
    if any(folder.glob(f"*/*_{digest}.npz")):
        return "it is there"
    with np.load(file.path) as arrays:
        write_graph(place, **arrays)
    return ""


def adopt(folder: Path, sample: Path, least: int) -> tuple[list[str], dict[str, str]]:
    """Write what is new below ``sample``; what was taken, and what was left out and why."""
    taken: list[str] = []
    left_out: dict[str, str] = {}
    for file in graph_files(find_data_root(folder).npz, [], where=str(folder)):
        if str(file.collection) == "tile:tpu-estimate":
            if why := adopt_tiles(file, sample):
                left_out[f"{file.collection} {file.name}"] = why
            else:
                taken.append(f"tile {file.name}")
            continue
        if file.collection.parts[:2] != ("layout", "tpu-estimate"):
            left_out[f"{file.collection} {file.name}"] = "not estimated by the TPU's compiler"
            continue
        search = _SEARCHES[file.collection.parts[-1]]
        title = f"{search} {file.name}"
        graph = read_graph(file.path)
        assert isinstance(graph, LayoutGraph)
        why = why_left_out(graph, file.name, least)
        place = sample / "npz" / "layout" / "tpu-estimate" / search / file.split / f"{file.name}.npz"
        if why:
            left_out[title] = why
        elif not place.exists():
            with np.load(file.path) as arrays:
                write_graph(place, **{one: arrays[one] for one in _ARRAYS})
            taken.append(title)
    return taken, left_out


def main() -> None:
    """Take them, and say what was done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sample", type=Path, default=SAMPLE)
    parser.add_argument("--least", type=int, default=LEAST)
    asked = parser.parse_args()
    taken, left_out = adopt(asked.folder, asked.sample, asked.least)
    for title, why in left_out.items():
        print(f"left out: {title}: {why}")
    print(f"took {len(taken)} graphs and kernels")


if __name__ == "__main__":
    main()
