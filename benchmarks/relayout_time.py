"""The estimated time with relayouts beside the labels of layout collections.

    python -m benchmarks.relayout_time --data-root D [--collection C]...

Prints Kendall's tau of every labelled graph of train and valid, as `evaluate` does, and the mean of
each collection.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from xlarank.data.collection import GraphFile, find_data_root, graph_files
from xlarank.data.graph import read_graph
from xlarank.features.assembly import assemble
from xlarank.features.layout.hardware import copy_hardware
from xlarank.features.layout.relayout_quantities import TIME
from xlarank.models.validation.metrics import graph_metrics


def formula_tau(file: GraphFile) -> float | None:
    """Return the tau of one graph; None if relayouts do not explain its labels."""
    hardware = copy_hardware(file.collection.hardware)
    if hardware is None:
        return None
    graph = read_graph(file.path, "layout")
    rows = assemble(graph, hardware, [TIME])
    if not rows.measured().rankable:
        return None
    times = rows.matrix()[:, rows.columns.index(TIME)].astype(np.float64)
    return graph_metrics("layout", times[graph.group], graph.cost, graph.group)["tau"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--collection", action="append", default=[])
    args = parser.parse_args()
    root = find_data_root(args.data_root)
    taus: dict[str, list[float]] = {}
    for file in graph_files(root.npz, args.collection, where=str(root.path)):
        if file.collection.kind == "layout" and file.split in ("train", "valid"):
            tau = formula_tau(file)
            if tau is not None:
                print(f"{file.collection} {file.name} {tau:.3f}")
                taus.setdefault(str(file.collection), []).append(tau)
    for name, values in taus.items():
        print(f"{name}: {len(values)} graphs, mean tau {np.mean(values):.3f}")


if __name__ == "__main__":
    main()
