"""Take graphs and kernels that ``collect`` labelled into the embedded sample.

    python -m benchmarks.adopt FOLDER

``FOLDER`` is that of ``collect --out``. Graphs keep their split. Left out, and named: graphs with
few distinct labels, graphs of families that are held out for scoring, and graphs that the sample
has.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from xlarank.data.collection import SAMPLE, GraphFile, find_data_root, graph_files
from xlarank.data.writing import write_graph

#: Held-out families, and those of the valid split.
RESERVED = frozenset({"resnet", "resnet_bn", "axial", "gnet", "gru", "crossattn", "unet", "mlp"})
#: Measured on a TPU in Google's files, a held-out test: nothing that ships learns from these
#: families.
MEASURED = frozenset({"alexnet"})
#: Least number of distinct labels of a layout graph.
_LEAST = 8
#: Prefixes of the arrays of TpuGraphs; the others are for training on single operations.
_FORMAT = ("node_", "edge_", "config_")


def sample_path(file: GraphFile, sample: Path) -> tuple[Path, str]:
    """Return the path of a file below ``sample``, and why it is left out (empty if it is not)."""
    kind, source, *_ = file.collection.parts
    folder = sample / "npz" / Path(*file.collection.parts)
    path = folder / file.split / f"{file.name}.npz"
    if source != "tpu-estimate":
        return path, "not estimated by the TPU's compiler"
    if file.family in (RESERVED | MEASURED if kind == "tile" else RESERVED):
        return path, "its family is reserved"
    digest = file.name.rpartition("_")[2]
    if any(folder.glob(f"*/*_{digest}.npz")) if kind == "tile" else path.exists():
        return path, "it is there"
    with np.load(file.path) as arrays:
        distinct = len(np.unique(arrays["config_runtime"]))
    return path, f"{distinct} distinct labels" if kind == "layout" and distinct < _LEAST else ""


def adopt(folder: Path, sample: Path) -> tuple[list[str], dict[str, str]]:
    """Write new graphs below ``sample``; return their names, and those left out with the reason."""
    taken: list[str] = []
    left_out: dict[str, str] = {}
    for file in graph_files(find_data_root(folder).npz, [], where=str(folder)):
        name = f"{file.collection} {file.name}"
        path, why = sample_path(file, sample)
        if why:
            left_out[name] = why
            continue
        with np.load(file.path) as arrays:
            write_graph(path, **{key: arrays[key] for key in arrays if key.startswith(_FORMAT)})
        taken.append(name)
    return taken, left_out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    taken, left_out = adopt(args.folder, SAMPLE)
    for title, why in left_out.items():
        print(f"left out: {title}: {why}")
    print(f"took {len(taken)} graphs and kernels")


if __name__ == "__main__":
    main()
