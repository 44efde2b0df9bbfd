"""Cards: descriptions of trained models, stored as ``model.json`` beside their members."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError
from xlarank.data.files import from_json, read_text
from xlarank.data.graph import Kind
from xlarank.features.rows import GraphRows, Recipe
from xlarank.models.arrays import Floats
from xlarank.models.objectives import mean_rank

CARD: Final = "model.json"
FAMILY: Final = "family"
KERNEL_FAMILY: Final = "kernel-family"


#: The fallback for unseen kernel families: ranks are blended with the compiler's default.
FALLBACK: Final = "weight 0.5 on the compiler's default"


def blend_default(rows: GraphRows, scores: Floats) -> Floats:
    """Return ``(rows,)`` means of the ranks of scores and of a ranking by the compiler's default.

    The default, the first configuration of a tile file, has rank 0 and all others have rank 1.
    Without it, return ``scores``.
    """
    first = np.flatnonzero(rows.ids == 0)
    if not len(first):
        return scores
    is_other = np.arange(len(rows)) != rows.group[first[0]]
    return np.asarray((mean_rank(scores) + is_other) / 2)


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """Description of a trained model, as written to ``model.json``.

    `Model.save` sets ``model``, ``params``, ``columns``, ``versions``, ``seeds``, ``members`` and
    ``rule``.

    Attributes:
        rounds: number of rounds.
        folds: out-of-fold metrics, ``{graph: {metric: value}}``; empty without folds.
        folds_by: unit that folds hold out, "family" or "kernel-family".
        others: scores of rankers that need no training on the graphs of ``folds``,
            ``{name: {graph: score}}``.
        target: hardware that it ranks for (`xlarank.data.hardware`); empty if unknown.
        kernel_families: families known to be in the training data; empty for layouts.
        fallback: whether graphs of unseen kernel families are scored by `blend_default`, as out of
            fold.
        also_from: training graphs of other collections by name.
        seeds: number of seeds.
        members: checksum of each member by folder; empty for a rule alone.
        rule, rule_weight: columns whose weighted sum ranks if there are no members.
        rows: number of training rows.
        max_rows: limit that the training rows of each collection were sampled to; 0: none.
    """

    collection: str
    model: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    rounds: int = 0
    tuned: bool = False
    recipe: Recipe
    columns: list[str] = field(default_factory=list)
    trained_on: dict[str, list[str]] = field(default_factory=dict)
    folds: dict[str, dict[str, float]] = field(default_factory=dict)
    folds_by: str = FAMILY
    others: dict[str, dict[str, float]] = field(default_factory=dict)
    target: str = ""
    kernel_families: list[str] = field(default_factory=list)
    fallback: bool = False
    select: str = "mean"
    also_from: dict[str, list[str]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    seeds: int = 1
    members: dict[str, str] = field(default_factory=dict)
    rule: list[str] = field(default_factory=list)
    rule_weight: float = 1.0
    rows: int | None = None
    max_rows: int = 0

    @property
    def kind(self) -> Kind:
        return Collection.parse(self.collection).kind

    @property
    def known_graphs(self) -> set[str]:
        """Names of all training graphs from any collection."""
        return {*chain(*self.trained_on.values(), *self.also_from.values())}

    def fallback_note(self, rows: GraphRows) -> str:
        """Describe the fallback that scores of a graph contain; empty if they contain none.

        A training graph is never unseen, although ``kernel_families`` lacks ambiguous ones.
        """
        possible = rows.kernel_families
        unseen = " or ".join(name for name in possible if name not in self.kernel_families)
        if not (self.fallback and unseen and 0 in rows.ids) or rows.name in self.known_graphs:
            return ""
        family = f"unseen kernel family ({unseen})"
        if len(possible) > 1:
            family = f"perhaps an unseen kernel family ({unseen})"
        return f"{family}: {FALLBACK}"


_FIELDS: Final = {field.name for field in fields(ModelCard)}


def read_card(folder: Path) -> ModelCard:
    """Read the card of a model; raises `ModelError` if it is missing or damaged."""
    path = folder / CARD
    if not path.exists():
        raise ModelError(f"there is no model at {folder}", expected=CARD, do="run train first")
    try:
        values = json.loads(read_text(path))
        if isinstance(values, dict) and not values.keys() <= _FIELDS:
            raise ValueError("it was written by another version of xlarank")
        card = from_json(ModelCard, values)
        Collection.parse(card.collection)
    except (OSError, ValueError, TypeError, RecursionError, CollectionError) as error:
        raise unusable(path, error) from error
    return card


def unusable(path: Path, error: Exception) -> ModelError:
    """Return the error of a model that cannot be read."""
    got = f"{path} cannot be used ({getattr(error, 'got', error)})"
    return ModelError(got, expected="a complete model", do="run train again")
