"""The time model of layouts beside measured runtimes: a table, and a picture of the docs.

    python -m benchmarks.time_model --data-root D [--svg docs/assets/time-model.svg]

Configurations that give every output the same order are one point: the mean of their measured
runtimes against the estimated time of the configurable nodes. Nothing in the model was fitted to
them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray

mpl.use("svg")
import matplotlib.pyplot as plt

from xlarank.data.collection import find_data_root, graph_files
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.schema import MAX_RANK
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.time_model import TimeModel
from xlarank.features.program.tensors import complete_layout
from xlarank.models.validation.metrics import graph_metrics

_COLOURS = ("#1f6f8b", "#c8553d", "#6a994e", "#7b5ea7")


class Points(NamedTuple):
    """Sets of output orders of a graph, milliseconds, and metrics of its configurations."""

    name: str
    measured: NDArray[np.float64]
    estimated: NDArray[np.float64]
    metrics: dict[str, float]


def points(path: Path, title: str) -> Points:
    """Compare one measured layout file with the model."""
    graph = read_graph(path, "layout")
    assert isinstance(graph, LayoutGraph)
    context = LayoutContext(graph)
    types = context.row_type[context.table.codes]
    times = TimeModel(context).type_ns[types].sum(axis=1)[graph.group].round(3)
    default = context.default_layout[graph.configurable[graph.table.node]]
    orders = complete_layout(graph.table.rows[:, :MAX_RANK].astype(np.int64), default)
    _, group = np.unique(
        orders[graph.table.codes].reshape(graph.configs, -1), axis=0, return_inverse=True
    )
    count = np.bincount(group)
    means = [np.bincount(group, values) / count / 1e6 for values in (graph.runtime, times)]
    metrics = graph_metrics("layout", times, graph.cost, graph.group)
    return Points(title, means[0], means[1], metrics)


def draw(panels: list[Points], svg: Path) -> None:
    figure, axes = plt.subplots(
        1, len(panels), figsize=(4 * len(panels), 3.6), layout="constrained"
    )
    for axis, part, colour in zip(np.atleast_1d(axes), panels, _COLOURS, strict=False):
        axis.scatter(part.estimated, part.measured, s=18, alpha=0.7, color=colour)
        axis.set(
            title=(
                f"{part.name}\n{len(part.measured)} sets of output orders, tau "
                f"{part.metrics['tau']:.2f}"
            ),
            xlabel="estimated, ms a step",
            ylabel="measured, ms",
        )
        axis.title.set_fontsize(9)
        if part.measured.max() > 2 * part.measured.min():
            axis.set(xscale="log", yscale="log")
    mpl.rcParams.update({"svg.hashsalt": "xlarank", "svg.fonttype": "none"})
    figure.savefig(svg, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--svg", type=Path)
    args = parser.parse_args()
    root = find_data_root(args.data_root)
    panels = []
    for file in graph_files(root.npz, [], where=str(root.path)):
        if file.collection.kind == "layout" and file.split in ("train", "valid"):
            part = points(file.path, f"{file.name} ({file.collection.parts[2]})")
            if np.ptp(part.measured) > 0:
                panels.append(part)
    for part in panels:
        values = "  ".join(f"{name} {value:.4f}" for name, value in part.metrics.items())
        least = part.estimated.min(), part.measured.min()
        print(
            f"{part.name}: estimated {least[0]:.2f} ms, measured {least[1]:.2f} ms at "
            f"least; {values}"
        )
    if args.svg:
        draw(panels, args.svg)


if __name__ == "__main__":
    main()
