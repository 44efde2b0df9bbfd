"""All columns of a layout graph the slow and obvious way: one configuration, one node, one pair at a time.

Nothing of the code under test is used, apart from which tensor a slot speaks of and which nodes are tied, which are
handed in (they have their own tests). Every column is written from its meaning, on ``node_config_feat`` as it is in
the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log, log2
from statistics import fmean

import networkx as nx
import numpy as np

from tests.features.oracle_around import Around
from tests.features.oracle_change import (
    change_columns,
    padding_columns,
    role_columns,
    type_columns,
    violation_columns,
)
from tests.features.oracle_configs import Columns, Configuration, Configured
from tests.features.oracle_copies import Copies, propagation_columns
from tests.features.oracle_groups import group_columns
from tests.features.oracle_outputs import OutputOracle
from tests.features.oracle_program import CLASSES, deviation
from xlarank.data.hlo.ties import Tied

__all__ = ["PLACED", "LayoutOracle", "ranks", "scores"]

REACH = 5


class LayoutOracle(Configured):
    """A layout graph's columns."""

    def __init__(
        self, arrays: Mapping[str, np.ndarray], slot_tensor: Sequence[Sequence[int]], tied: Sequence[Tied]
    ) -> None:
        super().__init__(arrays, slot_tensor)
        self.tied = tied

    def config_columns(self) -> Columns:
        """Every column of single configurations, one value for each distinct one."""
        columns: Columns = {}
        copies = Copies(self)
        around = Around(copies)
        outputs = OutputOracle(self)
        for number in self.distinct:
            config = Configuration(self, number)
            values = {
                **change_columns(self, config),
                **violation_columns(self, config),
                **type_columns(self, config),
                **role_columns(self, config),
                **padding_columns(self, config),
                **outputs.columns(config),
                **copies.columns(config),
                **propagation_columns(copies, config),
                **around.columns(config),
                **group_columns(self, config, self.tied),
                **self._frequency(number),
            }
            for name, value in values.items():
                columns.setdefault(name, []).append(value)
        for placed in PLACED:
            block, what, how = placed.split("__")
            columns[f"rank__{block}_{what}__{how}"] = ranks(columns[placed])
            columns[f"zscore__{block}_{what}__{how}"] = scores(columns[placed])
        return columns

    def graph_columns(self) -> dict[str, float]:
        columns = super().graph_columns()
        chosen, nodes = self.configurable, len(self.nodes)
        columns["configurable__nodes__log"] = log2(1 + len(chosen))
        columns["configurable__nodes__share"] = len(chosen) / nodes
        for name in CLASSES:
            own = sum(self.classes[node] == name for node in chosen)
            columns[f"configurable__{name}__share"] = own / self.count
        for hop in range(1, REACH + 1):
            near: set[int] = set()
            for node in chosen:
                near |= set(nx.single_source_shortest_path_length(self.neighbours, node, cutoff=hop))
            columns[f"configurable__within_{hop}hop__share"] = len(near) / nodes
        starts = sorted({0, *self.splits} - {nodes})
        sizes = [end - start for start, end in zip(starts, [*starts[1:], nodes], strict=True)]
        columns["computations__all__log"] = log2(1 + len(sizes))
        columns["computations__largest__share"] = max(sizes) / nodes
        columns["computations__size__log"] = log2(1 + fmean(sizes))
        columns["computations__size__std"] = deviation(sizes) / nodes
        return columns

    def _frequency(self, config: int) -> dict[str, float]:
        logs, unlike, minority = [], [], 0
        others = max(1, len(self.distinct) - 1)
        for place in self.places:
            rows = [tuple(self.full[other, place].tolist()) for other in self.distinct]
            same = rows.count(tuple(self.full[config, place].tolist()))
            logs.append(log(same / len(rows)))
            unlike.append((len(rows) - same) / others)
            minority += any(rows.count(row) > same for row in set(rows))
        return {
            "candidates__log_frequency__mean": sum(logs) / self.count,
            "candidates__log_frequency__sum": sum(logs),
            "candidates__log_frequency__min": min(logs, default=0.0),
            "candidates__hamming__mean": sum(unlike) / self.count,
            "candidates__minority__share": minority / self.count,
        }


PLACED = (
    "candidates__log_frequency__mean",
    "change__nodes_set__share",
    "change__nodes_changed__share",
    "change__all_bytes__ratio",
    "change__output_changed_bytes__share",
    "disagreement__mismatch_1hop_bytes__share",
    "disagreement__clash_1hop_bytes__share",
    "padding__output_waste_bytes__ratio",
    "padding__input_waste_bytes__ratio",
    "violation__output_largest_bytes__share",
)


def ranks(values: list[float]) -> list[float]:
    """0 for the smallest to 1 for the largest, ties at the mean of their places; 0.5 for a lone value.

    Values that float32 cannot tell apart are ties.
    """
    rounded = [float(np.float32(value)) for value in values]
    if len(rounded) == 1:
        return [0.5]
    places = []
    for value in rounded:
        below, equal = sum(other < value for other in rounded), sum(other == value for other in rounded)
        places.append((below + (equal - 1) / 2) / (len(rounded) - 1))
    return places


def scores(values: list[float]) -> list[float]:
    """(x - mean) / standard deviation of the float32 column; 0 where all are the same but for arithmetic noise."""
    rounded = [float(np.float32(value)) for value in values]
    spread, mean = deviation(rounded), fmean(rounded)
    if spread <= 1e-6 * max(abs(value) for value in rounded):
        return [0.0] * len(rounded)
    return [(value - mean) / spread for value in rounded]
