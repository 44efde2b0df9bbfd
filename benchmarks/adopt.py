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
from xlarank.data.root import SAMPLE, find_data_root
from xlarank.data.writing import write_graph

#: Held-out families, and those of the valid split.
RESERVED = frozenset({"resnet", "resnet_bn", "axial", "gnet", "gru", "crossattn", "unet", "mlp"})
#: Measured on a TPU in Google's files, a held-out test: nothing that ships learns from these families.
MEASURED = frozenset({"alexnet"})
_SEARCHES = {"random": "random", "evolve": "default", "tied": "tied"}
LEAST = 8
#: What only a teacher of single operations reads begins with these; the rest is the format of TpuGraphs.
_FORMAT = ("node_", "edge_", "config_")


def place_of(file: GraphFile, sample: Path, least: int) -> tuple[Path, str]:
    """Where a file goes below ``sample``, and why it is not taken, in words; empty where it is."""
    kind, source, *search = file.collection.parts
    folder = sample / "npz" / Path(kind, source, *(_SEARCHES.get(one, one) for one in search))
    place = folder / file.split / f"{file.name}.npz"
    if source != "tpu-estimate":
        return place, "not estimated by the TPU's compiler"
    if file.family in (RESERVED | MEASURED if kind == "tile" else RESERVED):
        return place, "its family is reserved"
    digest = file.name.rpartition("_")[2]
    if any(folder.glob(f"*/*_{digest}.npz")) if kind == "tile" else place.exists():
        return place, "it is there"
    with np.load(file.path) as arrays:
        distinct = len(np.unique(arrays["config_runtime"]))
    return place, f"{distinct} distinct labels" if kind == "layout" and distinct < least else ""


def adopt(folder: Path, sample: Path, least: int) -> tuple[list[str], dict[str, str]]:
    """Write what is new below ``sample``; what was taken, and what was left out and why."""
    taken: list[str] = []
    left_out: dict[str, str] = {}
    for file in graph_files(find_data_root(folder).npz, [], where=str(folder)):
        place, why = place_of(file, sample, least)
        if why:
            left_out[f"{file.collection} {file.name}"] = why
            continue
        with np.load(file.path) as arrays:
            write_graph(place, **{name: arrays[name] for name in arrays if name.startswith(_FORMAT)})
        taken.append(f"{file.collection} {file.name}")
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
