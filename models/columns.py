"""Choice and comparison of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from xlarank.data.errors import ModelError
from xlarank.features.block import Scope
from xlarank.features.catalogue import BLOCKS
from xlarank.models.arrays import Indices
from xlarank.models.training_data import UNKNOWN, Target, foreign_columns

#: Choices of columns: ``no_graph`` omits those that are constant within a graph, ``no_listwise``
#: the listwise ones, ``alone`` both.
CHOICES: Final = ("all", "no_graph", "no_listwise", "alone")


def chosen_columns(columns: Sequence[str], choice: str, target: Target = UNKNOWN) -> Indices:
    """Return the ascending indices of the columns that ``choice``, one of `CHOICES`, keeps.

    Columns that describe other hardware than the target are omitted, too.

    >>> chosen_columns(["size__nodes__log", "candidates__hamming__mean", "other"], "alone").tolist()
    [2]
    """
    omitted = set(foreign_columns(target))
    for block in BLOCKS:
        if block.scope is Scope.GRAPH and choice in ("no_graph", "alone"):
            omitted.update(block.columns)
        if block.listwise and choice in ("no_listwise", "alone"):
            omitted.update(block.columns)
    return np.array([i for i, name in enumerate(columns) if name not in omitted], np.intp)


def require_columns(got: Sequence[str], expected: Sequence[str]) -> None:
    """Raise `ModelError`, naming the differences, unless both lists are equal."""
    if list(got) == list(expected):
        return
    differences = []
    for label, names, other_names in (("lack", expected, {*got}), ("add", got, {*expected})):
        if extra := [name for name in names if name not in other_names]:
            rest = f" and {len(extra) - 5} more" if len(extra) > 5 else ""
            differences.append(f"{label} {len(extra)} ({', '.join(extra[:5])}{rest})")
    problem = f"the rows {' and '.join(differences) or 'have the same columns in another order'}"
    do = "run build-features with the settings of the model, or train again"
    expected_columns = f"the {len(expected)} columns that the model was trained on"
    raise ModelError(problem, expected=expected_columns, do=do)


def model_columns(columns: Sequence[str], got: Sequence[str], *, subset: bool) -> Indices:
    """Return the indices of a model's columns among the rows' columns; raise `ModelError` if any is
    missing or, unless it uses a ``subset``, if there are others.
    """
    if not subset:
        require_columns(got, columns)
    do = "run build-features again, or make the model again"
    return column_indices(columns, got, "the model", do)


def column_indices(names: Sequence[str], columns: Sequence[str], owner: str, do: str) -> Indices:
    """Return the indices of ``names`` in ``columns``; raise `ModelError` if any is missing or out
    of order.
    """
    index = {name: number for number, name in enumerate(columns)}
    missing = [name for name in names if name not in index]
    if missing:
        raise ModelError(
            f"the rows lack {len(missing)} columns of {owner} ({missing[0]}, ...)", do=do
        )
    indices = np.array([index[name] for name in names], np.intp)
    if (np.diff(indices) <= 0).any():
        raise ModelError(f"the rows have the columns of {owner} in another order", do=do)
    return indices
