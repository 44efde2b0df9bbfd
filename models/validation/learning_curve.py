"""What more programs to learn from are worth: scores of unseen families by rankers that learned from ever more."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import CollectionError
from xlarank.data.files import read_text, write_json
from xlarank.models.base import Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.training_set import TrainingSet
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.metrics import judge

#: Of the families that are not held out.
SHARES: Final = (0.25, 0.5, 1.0)
#: Random choices of families that each smaller share is averaged over.
_DRAWS: Final = 2
_FOLDS: Final = 5
#: With two there would be one point.
LEAST_FAMILIES: Final = 3


@dataclass(frozen=True)
class Point:
    """One number of families.

    Attributes:
        families, graphs: learned from, the mean over folds and draws.
        score: mean over all graphs, each by rankers that never saw its family.
        error: standard error of that mean; graphs of one family count as one observation.
    """

    families: float
    graphs: float
    score: float
    error: float


@dataclass(frozen=True)
class LearningCurve:
    """Points of rising number of families; ``judged`` graphs of ``of_families`` families stand behind each."""

    points: tuple[Point, ...]
    judged: int
    of_families: int

    @classmethod
    def of(
        cls, training: TrainingSet, ranker: Ranker[Any], settings: FitSettings, step: Callable[[str], None]
    ) -> LearningCurve:
        """Fit clones on growing numbers of families; ``step`` is told of each of the `fits_of` fits.

        What other collections add to learning is left out. Raises `CollectionError` with fewer than three families.
        """
        data = training.data
        plan = _plan(data.families, settings.seed)
        points = []
        for chosen in plan:
            scores: dict[str, list[float]] = {name: [] for name in data.names}
            learned = []
            for held, families in chosen:
                groups = [g for g in range(data.groups) if data.families[g] in families]
                learned.append((len(families), len(groups)))
                fitted = ranker.clone().fit(data.take(groups), settings)
                for g in held:
                    graph = data.parts[g]
                    predicted = fitted.predict(graph.matrix(), data.columns, data.instances_of(g))[graph.group]
                    scores[data.names[g]].append(judge(training.kind, predicted, graph.cost, graph.group)["score"])
                step(f"learned from {len(families)} families")
            of_graph = np.array([np.mean(scores[name]) for name in data.names])
            families_mean, graphs_mean = np.mean(learned, axis=0)
            points.append(
                Point(
                    float(families_mean),
                    float(graphs_mean),
                    float(of_graph.mean()),
                    clustered_error(of_graph, data.families),
                )
            )
        return cls(tuple(points), data.groups, len(set(data.families)))

    def save(self, path: Path, model: str) -> None:
        """Write it as that of the model of which ``model`` is the checksum."""
        write_json(path, {"model": model, **asdict(self)})

    @classmethod
    def load(cls, path: Path, model: str) -> LearningCurve | None:
        """What `save` wrote for this very model; None where there is none, or only another model's."""
        try:
            value = json.loads(read_text(path))
            if value.pop("model") != model:
                return None
            points = tuple(Point(**{k: float(v) for k, v in one.items()}) for one in value.pop("points"))
            return cls(points, int(value.pop("judged")), int(value.pop("of_families"))) if points else None
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None


def fits_of(families: Sequence[str]) -> int:
    """How many rankers a curve fits; 0 where there can be none."""
    try:
        return sum(len(chosen) for chosen in _plan(families, 0))
    except CollectionError:
        return 0


def clustered_error(values: NDArray[np.float64], clusters: Sequence[str]) -> float:
    """Standard error of the mean of ``values`` ``(n,)`` where those of one cluster are not independent.

    ``sqrt(c / (c - 1) * sum over clusters of (sum of deviations)²) / n`` with c clusters (Liang and Zeger 1986, of
    a mean); with clusters of one it is the usual one.

    >>> round(clustered_error(np.array([1.0, 2.0, 3.0]), ["a", "b", "c"]), 6)  # 1 / sqrt(3)
    0.57735
    >>> clustered_error(np.array([1.0, 1.0, 3.0, 3.0]), ["a", "a", "b", "b"])  # as of the two values 1 and 3
    1.0
    """
    deviation = values - values.mean()
    names = sorted(set(clusters))
    sums = [sum(d for d, cluster in zip(deviation, clusters, strict=True) if cluster == name) for name in names]
    return float(np.sqrt(len(names) / (len(names) - 1) * np.square(sums).sum()) / len(values))


def _plan(families: Sequence[str], seed: int) -> list[list[tuple[list[int], set[str]]]]:
    """For each share: (groups held out, families learned from) of each fit. A draw's shares are nested."""
    names = sorted(set(families))
    if len(names) < LEAST_FAMILIES:
        raise CollectionError(
            f"{len(names)} program families are too few for a learning curve", expected=f"{LEAST_FAMILIES} or more"
        )
    orders = []
    rng = np.random.default_rng(seed)
    for held in family_folds(families, _FOLDS):
        unseen = {families[g] for g in held}
        left = [name for name in names if name not in unseen]
        orders.append((held, [[left[i] for i in rng.permutation(len(left))] for _ in range(_DRAWS)]))
    plan: dict[tuple[int, ...], list[tuple[list[int], set[str]]]] = {}
    for share in SHARES:
        sizes = tuple(max(1, round(share * len(drawn[0]))) for _, drawn in orders)
        plan[sizes] = [  # few families: two shares may be the same number, which is fitted once
            (held, set(order[:size]))
            for size, (held, drawn) in zip(sizes, orders, strict=True)
            for order in (drawn[:1] if size == len(drawn[0]) else drawn)
        ]
    return list(plan.values())
