"""Comparison of rankers and rules from the stored results of a workspace."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from xlarank.data.collection import Collection, choose
from xlarank.data.errors import CollectionError, XlarankError
from xlarank.data.workspace import Workspace
from xlarank.models.validation.metrics import METRICS
from xlarank.pipelines.support import results


def leaderboard(
    workspace: Workspace, *, collections: Sequence[str] = (), metric: str = "score"
) -> pl.DataFrame:
    """Return `xlarank.pipelines.support.results.leaderboard` of the chosen collections.

    Raises `CollectionError` if nothing was evaluated, and `XlarankError` for an unknown metric.
    """
    table = results.read_results(workspace)
    if not len(table):
        do = "run train, evaluate or cross-validate first, or check `workspace`"
        raise CollectionError(f"the workspace {workspace.root} has no results", do=do)
    if metric not in METRICS:
        raise XlarankError(f"`metric` is {metric!r}", expected=", ".join(METRICS))
    known_collections = [Collection.parse(name) for name in table["collection"].unique()]
    chosen = choose(collections, known_collections, where=f"the results of {workspace.root}")
    is_chosen = pl.col("collection").is_in([*map(str, chosen)])
    return results.leaderboard(table.filter(is_chosen), metric)
