"""How common a configuration's choices are among the candidates of its graph (transductive)."""

from __future__ import annotations

import numpy as np

from xlarank.features.layout.aggregation import Aggregation, Batch, Finalize, LayoutBlock
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.program.tensors import Floats


class Frequency(LayoutBlock):
    """How common a configuration's choices are among the distinct candidates of the graph.

    A search visits good choices again and again, so in `default` collections a common row is a good row.
    The frequency of a row is its count over the number of distinct configurations.
    """

    transductive = True
    columns = {
        "candidates__log_frequency__mean": "mean over nodes of log(frequency of the node's row)",
        "candidates__log_frequency__sum": "sum over nodes of log(frequency of the node's row)",
        "candidates__log_frequency__min": "smallest log(frequency of a node's row)",
        "candidates__hamming__mean": "mean share of nodes that differ from another candidate",
        "candidates__minority__share": "share of nodes that differ from the majority of the candidates, that is "
        "whose row is less common than another row of the node",
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Finalize:
        table, nodes = context.table, context.configurable_nodes
        count = table.frequency
        log_frequency = np.log(np.maximum(count, 1) / table.configs)
        differing = (table.configs - count) / max(1, table.configs - 1)
        most = np.zeros(table.nodes, np.int64)
        np.maximum.at(most, table.node, count)
        minority = count < most[table.node]
        requested = aggregation.sum([log_frequency, differing, minority], over=nodes, each_node=True)
        rarest = aggregation.maximum([-log_frequency], each_node=True)

        def finalize(batch: Batch) -> Floats:
            mean, hamming, minor = batch[requested].T
            return np.stack([mean, mean * nodes, -batch[rarest][:, 0], hamming, minor], axis=1)

        return finalize
