"""How much faster a ranking's choice runs than what the compiler chose itself."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import Kind
from xlarank.features.rows import GraphRows
from xlarank.models.validation.bootstrap import bootstrap_interval
from xlarank.models.validation.metrics import top_of

Floats = NDArray[np.float64]

#: Of the first choice, and of the best of five: what is left when five are measured.
SPEEDUPS: Final = {"speedup@1": 1, "speedup@5": 5}
LAYOUTS_SET: Final = "change__nodes_set__share"


def compiler_cost(kind: Kind, rows: GraphRows) -> float | None:
    """Cost of the compiler's own choice; None where nobody measured it, or nobody can tell which it is.

    Of a layout graph it is the configuration that sets nothing. A tile's normalizer is the runtime of the
    compiler's own tile, so its cost is 1.
    """
    if kind == "tile":
        return 1.0 if (rows.normalizer > 1).all() else None
    if LAYOUTS_SET not in rows.columns:
        return None
    nothing_set = np.flatnonzero(rows.matrix(used=np.array([rows.columns.index(LAYOUTS_SET)]))[:, 0] == 0)
    cost = rows.row_cost[nothing_set]
    return float(cost[0]) if len(cost) and np.isfinite(cost[0]) else None


def speedups(
    score: Floats, cost: Floats, compiler: float, group: NDArray[np.int64] | None = None
) -> dict[str, float]:
    """`SPEEDUPS` of one graph: the compiler's cost over the best cost among the first k, above 1 is faster.

    Configurations that were not measured (cost inf) cannot be chosen.

    >>> speedups(np.array([1.0, 2.0, 3.0]), np.array([30.0, 10.0, 20.0]), 20.0)
    {'speedup@1': 0.6666666666666666, 'speedup@5': 2.0}
    """
    known = np.isfinite(cost)
    score, cost, group = score[known], cost[known], None if group is None else group[known]
    return {name: float(compiler / cost[top_of(k, score, group)].min()) for name, k in SPEEDUPS.items()}


def summarise_speedups(per_graph: dict[str, dict[str, float]]) -> dict[str, dict[str, Any]]:
    """``{speedup: {mean, std, low, high, graphs}}``, as `xlarank.models.validation.metrics.summarise`.

    The mean is geometric, so that twice as fast and half as fast make 1; std, low and high are those of the
    logarithms, low and high taken back.
    """
    report: dict[str, dict[str, Any]] = {}
    for name in SPEEDUPS if per_graph else ():
        graphs = {graph: values[name] for graph, values in per_graph.items()}
        logs = np.log(np.array(list(graphs.values())))
        low, high = bootstrap_interval(logs)
        report[name] = {
            "mean": float(np.exp(logs.mean())),
            "std": float(logs.std()),
            "low": float(np.exp(low)),
            "high": float(np.exp(high)),
            "graphs": graphs,
        }
    return report
