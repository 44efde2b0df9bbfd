"""How well the rule of tied nodes reproduces the groups of real layout files, and what configurations look like.

    python -m benchmarks.ties ROOT [--sample data/sample] [--tied OUT]

``ROOT`` holds files of TpuGraphs. Prints for every rule how many groups of real files it reproduces exactly, and
the precision and recall of pairs of nodes; then, for real files, the embedded sample and what was collected with
ties (``OUT``), groups, rows a node, and the share of nodes that are set; beside real files the same programs with
1000 configurations that the rule draws.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlarank.data.collection import graph_files
from xlarank.data.graph import LayoutGraph, read_graph, tensor_ranks
from xlarank.data.hlo.candidates import random_configurations, tied_candidates
from xlarank.data.hlo.ties import groups_of, tied_nodes
from xlarank.data.root import SAMPLE, find_data_root
from xlarank.data.schema import MAX_RANK, NODE_COLUMN

_NUMBERS = slice(NODE_COLUMN["convolution_dim_numbers_input_batch_dim"], NODE_COLUMN["feature_group_count"])
_DIMS = NODE_COLUMN["shape_dimensions_0"]


def numbered(keys: Sequence[Any]) -> NDArray[np.intp]:
    """Equal keys by equal numbers, in order of first appearance.

    >>> numbered(["b", "a", "b"]).tolist()
    [0, 1, 0]
    """
    seen: dict[Any, int] = {}
    return np.array([seen.setdefault(key, len(seen)) for key in keys], np.intp)


def real_groups(graph: LayoutGraph) -> NDArray[np.intp]:
    """``(configurable nodes,)`` groups of nodes whose rows change together in every configuration of a file."""
    codes = graph.table.codes
    return numbered([numbered(codes[:, node].tolist()).tobytes() for node in range(codes.shape[1])])


def agreement(real: NDArray[np.intp], ruled: NDArray[np.intp]) -> tuple[int, float, float]:
    """Groups of ``real`` that ``ruled`` has exactly, and precision and recall of its pairs of tied nodes.

    >>> agreement(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 2]))
    (1, 1.0, 0.3333333333333333)
    """
    table = np.zeros((int(real.max()) + 1, int(ruled.max()) + 1), np.int64)
    np.add.at(table, (real, ruled), 1)
    sizes, found = table.sum(axis=1), table.sum(axis=0)
    exact = int(((table == sizes[:, None]) & (table == found) & (table > 0)).sum())

    def pairs(counts: NDArray[np.int64]) -> float:
        return float((counts * (counts - 1) // 2).sum())

    return exact, pairs(table) / max(1.0, pairs(found)), pairs(table) / max(1.0, pairs(sizes))


def _shapes(graph: LayoutGraph) -> list[tuple[Any, ...]]:
    """Opcode, dimension numbers, and the output's and operands' sizes of each configurable node."""
    ranks, sizes = tensor_ranks(graph.node_feat), graph.node_feat[:, _DIMS : _DIMS + MAX_RANK]
    found = []
    for node in graph.configurable.tolist():
        operands = graph.edges[graph.edges[:, 0] == node, 1].tolist()
        shapes = tuple(tuple(sizes[one, : ranks[one]].tolist()) for one in (node, *operands))
        found.append((int(graph.opcode[node]), graph.node_feat[node, _NUMBERS].tobytes(), shapes))
    return found


RULES: dict[str, Callable[[LayoutGraph], NDArray[np.intp]]] = {
    "the rule of `tied_nodes`": lambda graph: groups_of(tied_nodes(graph)),
    "equal candidate rows in the file": lambda graph: numbered(
        [graph.table.rows[low:high].tobytes() for low, high in itertools.pairwise(graph.table.start)]
    ),
    "equal opcode, dimension numbers and shapes": lambda graph: numbered(_shapes(graph)),
    "equal opcode, dimension numbers and ranks": lambda graph: numbered(
        [(code, numbers, tuple(map(len, shapes))) for code, numbers, shapes in _shapes(graph)]
    ),
}


def layouts(root: Path, below: tuple[str, ...] = ("layout",)) -> list[tuple[str, LayoutGraph]]:
    """Name and graph of every layout file with several configurations."""
    found = []
    for file in graph_files(find_data_root(root).npz, [], where=str(root)):
        if file.collection.parts[: len(below)] == below:
            graph = read_graph(file.path)
            assert isinstance(graph, LayoutGraph)
            if len(graph.duplicates.first) > 1:
                found.append((f"{file.collection} {file.name}", graph))
    return found


def drawn(graph: LayoutGraph) -> LayoutGraph:
    """A real file's program with random configurations by the rule."""
    candidates = tied_candidates(graph, min_elements=0)
    return candidates.graph(graph, random_configurations(candidates, 1000, np.random.default_rng(0)))


def looks(graph: LayoutGraph) -> dict[str, float]:
    """What configurations of a file look like; means over its configurable nodes."""
    table, groups = graph.table, real_groups(graph)
    orders = np.unique(np.column_stack([table.node, table.rows[:, :MAX_RANK]]), axis=0)
    return {
        "nodes": table.nodes,
        "groups": int(groups.max()) + 1,
        "largest group": float(np.bincount(groups).max() / table.nodes),
        "rows a node": len(table.rows) / table.nodes,
        "output orders a node": len(orders) / table.nodes,
        "share of nodes set": float((table.rows >= 0).any(axis=1)[table.codes].mean()),
        "distinct configurations": len(graph.duplicates.first),
    }


def show_looks(title: str, graphs: Sequence[LayoutGraph]) -> None:
    """Print quartiles over graphs of `looks`."""
    found = [looks(graph) for graph in graphs]
    print(f"\n{title}: {len(found)} graphs\n\n| | least | a quarter below | median | a quarter above | most |")
    print("|---|---|---|---|---|---|")
    for name in found[0]:
        values = np.quantile([one[name] for one in found], (0, 0.25, 0.5, 0.75, 1))
        print(f"| {name} | " + " | ".join(f"{value:.3g}" for value in values) + " |")


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--sample", type=Path, default=SAMPLE)
    parser.add_argument("--tied", type=Path, action="append", default=[])
    asked = parser.parse_args()
    real = layouts(asked.root)
    print("| rule | file | groups of the file | of the rule | exactly reproduced | precision | recall |")
    print("|---|---|---|---|---|---|---|")
    for rule, groups in RULES.items():
        total = np.zeros(3, int)
        for name, graph in real:
            true, ruled = real_groups(graph), groups(graph)
            exact, precision, recall = agreement(true, ruled)
            numbers = int(true.max()) + 1, int(ruled.max()) + 1, exact
            total += numbers
            print(f"| {rule} | {name} | {' | '.join(map(str, numbers))} | {precision:.3f} | {recall:.3f} |")
        print(f"| {rule} | all | {' | '.join(map(str, total))} | | |")
    show_looks("real files", [graph for _, graph in real])
    show_looks("the same programs by the rule", [drawn(graph) for _, graph in real])
    show_looks("the sample", [graph for _, graph in layouts(asked.sample, ("layout", "tpu-estimate"))])
    for root in asked.tied:
        show_looks(str(root), [graph for _, graph in layouts(root)])


if __name__ == "__main__":
    main()
