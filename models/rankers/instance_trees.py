"""What the rankers share whose trees look at instances: which columns, whose instances, how they are saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.features.instances.graph import InstanceGraph, InstanceRarity
from xlarank.features.instances.instances import Instances, LazyInstances
from xlarank.models.base import Learned
from xlarank.models.rankers.columns import chosen_columns, leaves_out
from xlarank.models.rankers.lightgbm import LightGBMRanker, TreeParams
from xlarank.models.ranking_data import RankingData

Floats = NDArray[np.float64]

T = TypeVar("T", bound=TreeParams)


class InstanceTrees(LightGBMRanker[T]):
    """Trees on instances: a configuration's score is the sum of those of its instances.

    Rows without instances (tiles: one kernel, one choice) are instances themselves, one a configuration.
    """

    def __init__(self, params: T | Mapping[str, Any] | None = None, *, kind: Kind) -> None:
        super().__init__(params, kind=kind)
        self._instance_columns: list[str] = []

    @staticmethod
    def instance_score(sums: Floats) -> Floats:
        """Score of an instance from the negative sum of its trees; the higher, the slower."""
        return sums

    def _choose(self, data: RankingData, columns: str, tier: str) -> None:
        """Which columns to look at: of instances where the first group has them, otherwise of rows.

        Raises `ModelError` where the groups' instances are different ones.
        """
        for g in range(data.groups):
            instances = data.instances_of(g)
            names = [] if instances is None else instances.value.columns
            if g == 0:
                self._instance_columns = names
            elif names != self._instance_columns:
                raise ModelError(
                    f"{data.names[g]} and {data.names[0]} have different instances", do="run build-features again"
                )
        if self._start is not None:
            self._used = self._start.places(self._tree_columns() if self._instance_columns else data.columns)
        elif self._instance_columns:
            self._used = _chosen(self._tree_columns(), columns)
        else:
            self._used = chosen_columns(data.columns, columns, tier, data.target)

    def _table(self, rows: NDArray[np.float32], instances: LazyInstances | None) -> Instances | None:
        """The instances to score, or None where rows are instances; raises `ModelError` for the wrong ones."""
        if not self._instance_columns:
            return None
        if instances is None:
            raise ModelError(
                "the rows come without their instances",
                expected=f"the instances that {self.name} was trained on",
                do="pass the instances of the graph",
            )
        table = instances.value
        if table.configs != len(rows):
            raise ModelError(f"instances of {table.configs} configurations", expected=f"of the {len(rows)} rows")
        if table.columns != self._instance_columns:
            raise ModelError("the instances have other columns", do="run build-features again, or train again")
        return table

    def _tree_columns(self) -> list[str]:
        return self._instance_columns or self.columns

    def _learned(self) -> Learned:
        learned = super()._learned()
        return replace(learned, state={**learned.state, "instance_columns": self._instance_columns})

    def _restore(self, learned: Learned) -> None:
        self._instance_columns = [str(name) for name in learned.state["instance_columns"]]
        super()._restore(learned)


def _chosen(columns: list[str], choice: str) -> NDArray[np.intp]:
    """Indices of the columns of instances that a choice of `xlarank.models.rankers.columns.CHOICES` leaves."""
    graph, candidates = leaves_out(choice)
    left_out = {*(InstanceGraph.columns if graph else ()), *(InstanceRarity.columns if candidates else ())}
    return np.array([i for i, name in enumerate(columns) if name not in left_out], np.intp)
