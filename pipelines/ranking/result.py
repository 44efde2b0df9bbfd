"""An order of one graph's configurations."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import XlarankError
from xlarank.pipelines.ranking.trust import Trust

if TYPE_CHECKING:  # imported where a table or an explanation is asked for
    import polars as pl

    from xlarank.pipelines.reporting.explanations import Explanation


class Explainer(Protocol):
    """Explains configurations of one graph by one model."""

    def __call__(self, *, config: int | None, against: str | int | None) -> Explanation: ...


@dataclass(frozen=True)
class Ranked:
    """A configuration in its place.

    Attributes:
        rank: from 1 on, among distinct configurations.
        configuration: the first of those that are identical, as numbered in the file.
        score: lower is faster; only comparable within the graph.
        runtime_ns: the fastest that was measured of it; None where none was.
        identical: the other configurations that are the same.
        certainly_ahead_of: how many distinct configurations it is certainly faster than; None where the model was
            not calibrated.
        speedup: the runtime of the compiler's own choice over its own; None where either is not known.
    """

    rank: int
    configuration: int
    score: float
    runtime_ns: int | None
    identical: list[int]
    certainly_ahead_of: int | None = None
    speedup: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The same as plain values; without what is not known of any."""
        values = asdict(self)
        for name in ("certainly_ahead_of", "speedup"):
            if values[name] is None:
                del values[name]
        return values


@dataclass(frozen=True, eq=False)
class Ranking:
    """An order of configurations.

    Attributes:
        graph, collection: what was ranked, by the model of which collection.
        order: ``(configs,)`` configuration ids, fastest first.
        scores: ``(configs,)`` by configuration id; lower is faster; only comparable within the graph.
        same_as: ``(configs,)`` lowest id of an identical configuration.
        runtime: ``(configs,)`` measured nanoseconds, 0 where not measured.
        metrics: how good it is, where the file holds runtimes.
        trust: how certain it is, where the model was calibrated.
        fallback: what the ranking falls back on because the kernel is of a kind never seen, in words; else empty.
        shipped: whether the model is the one that came with xlarank, for want of one in the workspace.
        speedup: ``(configs,)`` runtime of the compiler's own choice over that of each configuration, NaN where not
            measured; None where that of the compiler's choice is not known. Of a tile both are over the normalizer.
        speedups: of the first and of the best of five (`xlarank.models.validation.speedup`), where they are known.
        explainer: what `explain` asks; None for a ranking that was not made by `xlarank.pipelines.rank.rank`.
    """

    graph: str
    collection: str
    order: NDArray[np.intp]
    scores: NDArray[np.float64]
    same_as: NDArray[np.int64]
    runtime: NDArray[np.int64]
    metrics: dict[str, float] | None
    trust: Trust | None = None
    fallback: str = ""
    shipped: bool = False
    speedup: NDArray[np.float64] | None = None
    speedups: dict[str, float] | None = None
    explainer: Explainer | None = field(default=None, repr=False)

    def explain(self, config: int | None = None, against: str | int | None = None) -> Explanation:
        """Why a configuration (by default the first) is ahead of another: contributions that add up.

        ``against`` is a configuration or "default", the one that sets no layout; left out, it is that one, or the
        middle of the ranking where that is no candidate. Raises `xlarank.data.errors.XlarankError` for a
        configuration that the graph does not have.
        """
        if self.explainer is None:
            raise XlarankError("this ranking came without its model", do="rank the graph with xlarank.rank")
        return self.explainer(config=config, against=against)

    def best(self, top: int | None = None) -> list[Ranked]:
        """The first ``top`` distinct configurations (all by default), each with its identical ones."""
        alike: dict[int, list[int]] = {}
        for config in self.order:
            alike.setdefault(int(self.same_as[config]), []).append(int(config))
        return [
            Ranked(
                rank=rank,
                configuration=members[0],
                score=float(self.scores[members[0]]),
                runtime_ns=min((int(time) for time in self.runtime[members] if time > 0), default=None),
                identical=members[1:],
                certainly_ahead_of=None if self.trust is None else int(self.trust.ahead_of[members[0]]),
                speedup=self._speedup_of(members),
            )
            for rank, members in enumerate(list(alike.values())[:top], start=1)
        ]

    def _speedup_of(self, members: list[int]) -> float | None:
        """Of the fastest measurement of a configuration."""
        if self.speedup is None or np.isnan(self.speedup[members]).all():
            return None
        return float(np.nanmax(self.speedup[members]))

    def to_polars(self) -> pl.DataFrame:
        """A row for each configuration, fastest first.

        Columns: ``rank`` (from 1 on), ``configuration``, ``score``, ``same_as`` (the lowest id of an identical
        configuration) and ``runtime_ns``, null where not measured.
        """
        import polars as pl

        runtime = self.runtime[self.order]
        return pl.DataFrame(
            {
                "rank": np.arange(1, len(self.order) + 1),
                "configuration": self.order.astype(np.int64),
                "score": self.scores[self.order],
                "same_as": self.same_as[self.order],
                "runtime_ns": pl.Series([int(time) if time > 0 else None for time in runtime], dtype=pl.Int64),
            }
        )

    def as_json(self, top: int | None = None) -> dict[str, Any]:
        """Everything as plain values: the whole order, and the best with what is known of them."""
        return {
            "graph": self.graph,
            "collection": self.collection,
            "shipped": self.shipped,
            "fallback": self.fallback,
            "order": self.order.tolist(),
            "best": [entry.as_json() for entry in self.best(top)],
            "metrics": self.metrics,
            "speedups": self.speedups,
            "trust": self.trust.as_json() if self.trust else None,
        }
