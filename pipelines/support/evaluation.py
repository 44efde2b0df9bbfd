"""Scores by collection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Evaluation:
    """Scores by collection.

    Attributes:
        judged: description of the scored graphs: a split, or what was held out.
        report: ``{collection: {metric: {mean, std, low, high, graphs: {name: value}}}}``, by
            `xlarank.models.validation.metrics.summarise`; with a level of rankers above the metrics where several
            are compared (`xlarank.models.validation.paired.compare_rankers`).
        speedups: ``{collection: {speedup: {mean, std, low, high, graphs}}}`` over the compiler's own choice, of the
            graphs where its runtime is known.
        left_out: collection (or ``collection graph``) -> why it has no score.
        notes: what a reader must know to trust a number.
    """

    judged: str
    report: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    speedups: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
