"""What a ranking has to beat: orders that need no model."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import Kind
from xlarank.models.validation.metrics import METRICS, judge, slowdown_at

Floats = NDArray[np.float64]

#: Draws behind the mean slowdown of a random order.
_DRAWS: Final = 20
FILE_ORDER: Final = "file order"
RANDOM: Final = "random"
FEWEST_SET: Final = "fewest layouts set"


def baselines(
    kind: Kind, cost: Floats, group: NDArray[np.int64], layouts_set: Floats | None = None
) -> dict[str, dict[str, float]]:
    """Metrics of one graph by orders that look at no model: ``{baseline: {metric: value}}``.

    Args:
        cost: ``(configs,)`` in the order of the file; inf where not measured.
        group: ``(configs,)`` which configurations are identical.
        layouts_set: ``(configs,)`` how many nodes have a layout of their own; None where nobody counted.

    A random order has tau 0 and half of the pairs right; its slowdown is the mean of 20 draws.
    """
    known = np.isfinite(cost)
    cost, group = cost[known], group[known]
    found = {FILE_ORDER: judge(kind, np.arange(len(cost), dtype=np.float64), cost, group)}
    rng = np.random.default_rng(0)
    draws = [rng.random(len(cost)) for _ in range(_DRAWS)]
    first, fifth = (float(np.mean([slowdown_at(k, draw, cost, group) for draw in draws])) for k in (1, 5))
    found[RANDOM] = dict(
        zip(METRICS, (0.0, 0.5, first, fifth, 0.0 if kind == "layout" else 1 - fifth), strict=True)
    )
    if layouts_set is not None:
        found[FEWEST_SET] = judge(kind, layouts_set[known].astype(np.float64), cost, group)
    return found


def each_once(score: Floats, cost: Floats, group: NDArray[np.int64]) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Score, smallest cost and number of each distinct configuration, for a judgement that counts it once."""
    numbers, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    least = np.full(len(numbers), np.inf)
    np.minimum.at(least, inverse, cost)
    return score[first], least, numbers
