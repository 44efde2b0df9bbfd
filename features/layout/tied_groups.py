"""Groups of nodes that Google's searches change together: how many of them a configuration turns."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.hlo.ties import Tied, groups_of, tied_nodes
from xlarank.features.layout.aggregation import Aggregation, LayoutBlock, Request
from xlarank.features.layout.layout_context import LayoutContext

_KINDS: Final = ("convolution", "dot", "reshape")
_OF_KIND: Final = {
    "turned__share": "mean over groups of tied {}s of the share of nodes with a turned output",
    "turned_bytes__share": "bytes of turned outputs of {}s, over the output bytes of all configurable nodes",
    "set_bytes__share": "bytes of set outputs of {}s, over the output bytes of all configurable nodes",
}


class TiedGroups(LayoutBlock):
    """Outputs set and turned, with equal weight for every group of tied nodes, whatever its size.

    An output is *turned* where its minor-most dimension is not that of the first order of its group: the one that
    pads least of a convolution or dot, row major of a reshape. A sum over nodes depends on the size of the program;
    the share of its choices that were made differently does not. Groups and orders: `xlarank.data.hlo.ties`.
    """

    columns = {
        "groups__set__share": "mean over groups of tied nodes of the share of nodes with a set output",
        "groups__turned__share": "mean over groups of tied nodes of the share of nodes with a turned output",
        "groups__turned_bytes__share": "bytes of turned outputs, over the output bytes of all configurable nodes",
        **{f"groups__{kind}_{what}": text.format(kind) for kind in _KINDS for what, text in _OF_KIND.items()},
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Request:
        tied = tied_nodes(context.graph)
        group, kinds = groups_of(tied), np.array([one.signature[0] for one in tied])
        node, minor = context.table.node, context.table.rows[:, 0]
        given = minor >= 0
        turned = given & (minor != _first_minor(tied)[node])
        share = 1 / np.bincount(group)[group][node]  # the nodes of a group add up to 1
        bytes_ = context.bytes[context.graph.configurable][node]
        groups, total = _count(group), context.slots["output"].total_bytes
        tables, over = [given * share, turned * share, turned * bytes_], [groups, groups, total]
        for kind in _KINDS:
            mine = (kinds == kind)[node]
            tables += [mine * turned * share, mine * turned * bytes_, mine * given * bytes_]
            over += [_count(group[kinds == kind]), total, total]
        return aggregation.sum(tables, over=over, each_node=True)


def _first_minor(tied: list[Tied]) -> NDArray[np.int64]:
    """``(nodes,)`` minor-most dimension of the output in the first order of its group; -1 where none may be set."""
    return np.array([one.orders[0][0][0] if one.orders and one.orders[0][0] else -1 for one in tied], np.int64)


def _count(group: NDArray[np.intp]) -> float:
    """Number of distinct groups, at least 1."""
    return max(1.0, float(len(np.unique(group))))
