"""A synthetic data root, shaped like the official dataset at any share of its size.

    python -m benchmarks.synthetic_root OUT --data-root ~/data/tpugraphs --share 0.03

Numbers of graphs, nodes and configurations are the official ones. Programs are copies of real
files, a large one many copies side by side, and configurations are drawn from their candidates;
tied nodes change together. Labels are *not measured*: they are the package's time model (layouts)
or estimate (tiles) with noise, so scores on this root mean nothing. Existing files are kept.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.official_sizes import SIZES, PlannedGraph, plan
from xlarank.data.collection import Collection, discover, find_data_root
from xlarank.data.graph import Graph, LayoutGraph, TileGraph, read_graph
from xlarank.data.schema import LAYOUT_COLUMNS, MAX_RANK, NODE_COLUMN
from xlarank.data.writing import write_graph
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.time_model import TimeModel
from xlarank.features.tile.tile_context import TileContext
from xlarank.features.tile.tpu_time import COSTS, WindowLoop

#: Most configurations times configurable nodes of a file, which then unpacks to 2.6 GB.
_MOST_CHOICES: Final = 36_000_000
#: Measurements of the compiler's default in a layout file.
_REPEATS: Final = 40
#: Standard deviation of the logarithms of labels.
_NOISE: Final = 0.002
#: Labels of the test split, as in real files.
_LABELS: Final = {"config_runtime": 0, "config_runtime_normalizers": 1}


class LayoutTemplate:
    """A real program with its candidates, their estimated times and its groups of tied nodes."""

    def __init__(self, graph: LayoutGraph) -> None:
        self.graph = graph
        context = LayoutContext(graph)
        self.row_ns = TimeModel(context).type_ns[context.row_type]
        groups: dict[bytes, int] = {}
        self.tied = np.zeros(graph.table.nodes, np.int64)
        for node, codes in enumerate(graph.table.codes.T):
            _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
            self.tied[node] = groups.setdefault(first[inverse].tobytes(), len(groups))

    def suits(self, planned: PlannedGraph) -> bool:
        return self.graph.nodes <= 1.5 * planned.nodes

    def arrays(self, planned: PlannedGraph, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        graph = self.graph
        copies = max(1, round(planned.nodes / graph.nodes))
        configurable = copies * graph.table.nodes
        configs = min(planned.configs, _MOST_CHOICES // configurable)
        codes = self._draw(configs, "default" in planned.path.parts, rng)
        feat = np.empty((configs, copies, graph.table.nodes, len(LAYOUT_COLUMNS)), np.float32)
        nanoseconds = np.empty(configs)
        for start in range(0, configs, 1024):
            part = codes[start : start + 1024]
            feat[start : start + 1024] = graph.table.rows[part][:, None]
            nanoseconds[start : start + 1024] = self.row_ns[part].sum(axis=1)
        offset = np.arange(copies)[:, None] * graph.nodes
        return {
            "node_feat": np.tile(_with_batch(graph, planned.batch), (copies, 1)),
            "node_opcode": np.tile(graph.opcode, copies).astype(np.uint8),
            "edge_index": (graph.edges + offset[:, :, None]).reshape(-1, 2),
            "node_splits": (graph.splits + offset).reshape(1, -1),
            "node_config_ids": (graph.configurable + offset).reshape(-1),
            "node_config_feat": feat.reshape(configs, configurable, len(LAYOUT_COLUMNS)),
            "config_runtime": 1e6 + copies * planned.batch * nanoseconds,
        }

    def _draw(self, configs: int, default: bool, rng: np.random.Generator) -> NDArray[np.int32]:
        """Return ``(configs, K)`` codes: each group of tied nodes as in a random candidate."""
        shape = configs, int(self.tied.max()) + 1
        source = rng.integers(self.graph.configs, size=shape)
        if default:  # as from a genetic search: a parent with a few mutations
            parent = rng.integers(self.graph.configs, size=(configs, 1))
            source = np.where(rng.random(shape) < 0.1, source, parent)
        source[rng.permutation(configs)[: min(_REPEATS, configs // 10)]] = 0
        codes = np.empty((configs, len(self.tied)), np.int32)
        for node, group in enumerate(self.tied):
            codes[:, node] = self.graph.table.codes[source[:, group], node]
        return codes


def _with_batch(graph: LayoutGraph, factor: int) -> NDArray[np.float32]:
    """Return ``node_feat`` with the most frequent first dimension of configurable nodes scaled."""
    feat = graph.node_feat.copy()
    first = NODE_COLUMN["shape_dimensions_0"]
    sizes = feat[:, first : first + MAX_RANK]
    values, counts = np.unique(sizes[graph.configurable, 0], return_counts=True)
    sizes[sizes == values[counts.argmax()]] *= factor
    _sum_and_multiply(feat[:, first : first + MAX_RANK + 2])
    return feat


def _sum_and_multiply(columns: NDArray[np.float32]) -> None:
    """Set the last two of eight columns to the sum and the product of the dimensions."""
    sizes = columns[:, :MAX_RANK]
    columns[:, MAX_RANK] = sizes.sum(axis=1)
    product = np.where(sizes > 0, sizes, 1).prod(axis=1)
    columns[:, MAX_RANK + 1] = np.where(sizes.any(axis=1), product, 0)


class TileTemplate:
    """A real kernel; new candidates mix the bounds of its candidates dimension by dimension."""

    def __init__(self, graph: TileGraph) -> None:
        self.graph = graph
        bounds = (column for column in range(graph.config_feat.shape[1]) if column % 8 < MAX_RANK)
        self.choices = {column: np.unique(graph.config_feat[:, column]) for column in bounds}
        self.capacity = int(np.prod([len(values) for values in self.choices.values()]))

    def suits(self, planned: PlannedGraph) -> bool:
        return self.capacity >= planned.configs

    def arrays(self, planned: PlannedGraph, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        graph = self.graph
        drawn = rng.choice(self.capacity, min(planned.configs, self.capacity), replace=False)
        feat = np.zeros((len(drawn), graph.config_feat.shape[1]), np.float32)
        for column, values in self.choices.items():
            drawn, digit = np.divmod(drawn, len(values))
            feat[:, column] = values[digit]
        for first in range(0, feat.shape[1], MAX_RANK + 2):
            _sum_and_multiply(feat[:, first : first + MAX_RANK + 2])
        ones = np.ones(len(feat), np.int64)
        kernel = replace(graph, config_feat=feat, runtime=ones, normalizers=ones)
        loop = WindowLoop(TileContext(kernel))
        nanoseconds = COSTS[loop.kind].cycles(loop)[kernel.group] / 0.94
        return {
            "node_feat": graph.node_feat,
            "node_opcode": graph.opcode.astype(np.uint8),
            "edge_index": graph.edges,
            "config_feat": feat,
            "config_runtime": nanoseconds,
            "config_runtime_normalizers": ones * (int(nanoseconds[0]) + 1),
        }


def write_collection(out: Path, real: Path, name: str, share: float, seed: int = 0) -> None:
    """Write the files of a collection below ``out``; ``real`` is a data root to copy from."""
    collection = Collection.parse(name)
    graphs: dict[str, Graph] = {}
    for file in discover(find_data_root(real).npz):
        if file.collection.parts[:2] == collection.parts[:2]:
            graphs.setdefault(file.name, read_graph(file.path))
    templates: list[LayoutTemplate | TileTemplate] = []
    for graph in graphs.values():
        if len(graph.first) > 1:
            templates.append(
                LayoutTemplate(graph) if isinstance(graph, LayoutGraph) else TileTemplate(graph)
            )
    for planned in plan(collection, share, seed):
        path = out / "npz" / planned.path
        if path.exists():
            continue
        rng = np.random.default_rng([seed, *planned.path.name.encode()])
        fitting = [template for template in templates if template.suits(planned)] or templates
        arrays = fitting[planned.program % len(fitting)].arrays(planned, rng)
        noise = np.exp(_NOISE * rng.standard_normal(len(arrays["config_runtime"])))
        arrays["config_runtime"] = (1 + arrays["config_runtime"] * noise).astype(np.int64)
        if path.parent.name == "test":  # labels are withheld
            for name in arrays.keys() & _LABELS.keys():
                arrays[name] = np.full_like(arrays[name], _LABELS[name])
        write_graph(path, **arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data-root", type=Path, required=True, help="real files to copy from")
    parser.add_argument("--share", type=float, default=0.03, help="of the official size")
    parser.add_argument("--collection", action="append", choices=[*SIZES], help="default: all")
    args = parser.parse_args()
    for name in args.collection or SIZES:
        write_collection(args.out, args.data_root, name, args.share)


if __name__ == "__main__":
    main()
