"""What rankers of one kind of graphs learn from and are validated on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import Kind
from xlarank.models.fallback import Fallback
from xlarank.models.ranking_data import RankingData
from xlarank.models.validation.metrics import judge


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Graphs of one kind that can be learned from.

    Attributes:
        data: its query groups; the parts are whole graphs, to be validated on.
        also: groups of other collections, to learn from alone; None for none.
        fallback: what held-out graphs fall back on, where folds hold out kinds of kernels.
    """

    kind: Kind
    data: RankingData
    also: RankingData | None = field(default=None, kw_only=True)
    fallback: Fallback | None = field(default=None, kw_only=True)

    def judge(self, group: int, scores: NDArray[np.float64]) -> dict[str, float]:
        """Metrics of a group by ``(rows,)`` scores."""
        graph = self.data.parts[group]
        if self.fallback is not None:
            scores = self.fallback.blend(graph, scores)
        return judge(self.kind, scores[graph.group], graph.cost, graph.group)

    def without(self, held: Sequence[int]) -> RankingData:
        """What is learned from while some groups are held out.

        The other groups, and of other collections the families, and the kinds of kernel, that no held-out group is
        of: the same program, searched otherwise, would tell too much.
        """
        held_set = set(held)
        left = self.data.take([group for group in range(self.data.groups) if group not in held_set])
        if self.also is None:
            return left
        unseen = {self.data.families[group] for group in held}
        kinds = {kind for group in held for kind in self.data.parts[group].kinds}
        fitting = [
            group
            for group in range(self.also.groups)
            if self.also.families[group] not in unseen and kinds.isdisjoint(self.also.parts[group].kinds)
        ]
        return left.join(self.also.take(fitting)) if fitting else left

    def whole(self) -> RankingData:
        """All that is learned from."""
        return self.data if self.also is None else self.data.join(self.also)
