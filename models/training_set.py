"""What rankers of one kind of graphs learn from and are judged on."""

from __future__ import annotations

from dataclasses import dataclass

from xlarank.data.graph import Kind
from xlarank.models.ranking_data import RankingData


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Graphs of one kind that can be learned from.

    Attributes:
        data: its query groups; the parts are whole graphs, to be judged on.
    """

    kind: Kind
    data: RankingData
