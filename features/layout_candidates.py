"""Where a configuration stands among the candidates of its graph (transductive)."""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.stats import rankdata

from features.block import Block
from features.layout import LayoutContext
from features.tensors import Floats


class Frequency(Block):
    """How common a configuration's choices are among the distinct candidates of the graph.

    A search visits good choices again and again, so in `default` collections a common row is a good row.
    The frequency of a row is its count over the number of distinct configurations.
    """

    kinds = ("layout",)
    transductive = True
    columns = {
        "candidates__log_frequency__mean": "mean over nodes of log(frequency of the node's row)",
        "candidates__log_frequency__min": "smallest log(frequency of a node's row)",
        "candidates__hamming__mean": "mean share of nodes that differ from another candidate",
        "candidates__log_frequency__rank": "rank of the mean log frequency among the candidates, 0 to 1",
    }

    def compute(self, context: LayoutContext) -> Floats:
        table = context.table
        count = np.asarray(table.counts.sum(axis=0)).reshape(-1)
        log_frequency = np.log(np.maximum(count, 1) / table.configs)
        differing = (table.configs - count) / max(1, table.configs - 1)
        sums = context.sum_rows([log_frequency, differing], over=context.configurable_nodes)
        return np.stack(
            [
                sums[:, 0],
                -context.max_rows(-log_frequency),
                sums[:, 1],
                within_graph_rank(sums[:, 0]),
            ],
            axis=1,
        )


_RANKED: Final = (
    "change__nodes_set__share",
    "change__nodes_changed__share",
    "change__all_bytes__share",
    "change__output_changed_bytes__share",
    "disagreement__mismatch_1hop_bytes__share",
    "disagreement__clash_1hop_bytes__share",
    "padding__output_waste_bytes__ratio",
    "padding__input_waste_bytes__ratio",
    "violation__output_largest_bytes__share",
)


def rank_name(column: str) -> str:
    """Name of the column that ranks another one within the graph."""
    block, what, how = column.split("__")
    return f"rank__{block}_{what}__{how}"


class CandidateRanks(Block):
    """Rank of important columns among the distinct candidates of the graph, 0 to 1, ties averaged."""

    kinds = ("layout",)
    transductive = True
    columns = {rank_name(column): f"rank within the graph of {column}" for column in _RANKED}

    def compute(self, context: LayoutContext) -> Floats:
        return np.stack([within_graph_rank(context.columns[column]) for column in _RANKED], axis=1)


def within_graph_rank(values: Floats) -> Floats:
    """Average rank scaled to 0..1; 0.5 for a lone value. Rounded first, so that ties survive arithmetic noise.

    >>> within_graph_rank(np.array([3.0, 1.0, 3.0])).tolist()
    [0.75, 0.0, 0.75]
    """
    if len(values) < 2:
        return np.full(len(values), 0.5)
    ranks: Floats = rankdata(values.astype(np.float32)) - 1
    return ranks / (len(values) - 1)
