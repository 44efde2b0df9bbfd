"""Ensemble corrected by training graphs of the same program at other batch sizes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from xlarank.data.files import read_text
from xlarank.data.graph import Kind
from xlarank.features.attribution import Walk, walk_codes, walk_steps
from xlarank.features.instances.graph_instances import Instances
from xlarank.features.rows import GraphRows, LazyInstances, even_ranks
from xlarank.models.arrays import Floats, Integers, Matrix
from xlarank.models.base import Parts, Place, Ranker
from xlarank.models.objectives import mean_rank
from xlarank.models.params import Between, Number, RankerParams, Whole, nested_params, param
from xlarank.models.rankers.ensemble import Ensemble, EnsembleParams, blend
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.validation.folds import family_folds, out_of_fold_scores

#: Name of the column under which the siblings' contribution is reported.
SIBLINGS: Final = "known__siblings__ranks"
_GENERAL: Final = "general"
_SIBLINGS: Final = "siblings.json"
#: Cache of out-of-fold scores, ``(rows,)``, with their parameters and settings, by training data.
_PRIORS: Final[WeakKeyDictionary[TrainingData, tuple[SiblingParams, FitSettings, Floats]]] = (
    WeakKeyDictionary()
)


@dataclass(frozen=True, eq=False)
class Sibling:
    """Training graph, used to correct rankings of graphs with the same structure.

    Attributes:
        structure: hash of the opcodes and edges.
        node: ``(nodes,)`` numbers of the configurable nodes.
        sizes: ``(nodes, 6)`` output shapes.
        outputs: ``(configs, nodes, 6)`` layouts set on outputs, -1 for none.
        target, prior: ``(configs,)`` ranks by cost, and by the general ranker out of fold, -1
            (fastest) to 1.
    """

    structure: int
    node: Integers
    sizes: Integers
    outputs: NDArray[np.int8]
    target: Floats
    prior: Floats

    def __post_init__(self) -> None:
        if not len(self.outputs) == len(self.target) == len(self.prior):
            raise ValueError("a sibling's configurations and ranks differ in number")


@dataclass(frozen=True, kw_only=True)
class SiblingParams(RankerParams):
    """Parameters of `SiblingRanker`.

    Attributes:
        general: parameters of the `Ensemble` to be corrected, which alone ranks graphs without
            siblings.
        folds, configs: maximum numbers of folds for the siblings' priors, and of configurations
            kept per graph.
        sibling_weight: weight of the siblings' ranks; the general ranker's is 1 minus this.
        ridge, prior_weight: variance of the noise of a rank, and prior variance of the weight of
            the general rank.
    """

    ranker: ClassVar[str] = "sibling"

    general: EnsembleParams = nested_params(lambda kind, values: Ensemble(values, kind=kind).params)
    folds: int = param(5, Whole(2))
    configs: int = param(200, Whole(2))
    sibling_weight: float = param(0.5, Number(0, 1), Between(0.1, 1.0))
    ridge: float = param(0.03, Number(0, above=True), Between(0.003, 0.3, log=True))
    prior_weight: float = param(1.0, Number(0), Between(0.1, 10.0, log=True))


class SiblingRanker(Ranker[SiblingParams]):
    """An `Ensemble`, corrected by training graphs of the same structure (siblings).

    The ranks of a sibling are regressed on the general ranker's out-of-fold ranks p of the same
    configurations and on the layouts of its outputs by kernel ridge regression. The kernel is
    ``prior_weight p p' + s + 1``, s the `similarity`. Predictions of several siblings are averaged,
    weighted by `nearness`, and the ranks of the mean are blended with the general ranker's. Graphs
    without siblings are ranked by the general ranker alone.
    """

    params_class = SiblingParams
    part_names = (_GENERAL,)

    def __init__(
        self, params: SiblingParams | Mapping[str, Any] | None = None, *, kind: Kind
    ) -> None:
        super().__init__(params, kind=kind)
        self._general = Ensemble(self.params.general, kind=kind)
        self._siblings: list[Sibling] = []
        self._deferred: tuple[TrainingData, FitSettings] | None = None  # for `finish`
        self._structures: set[int] = set()

    def fit(self, data: TrainingData, settings: FitSettings) -> Self:
        self._require_rounds(settings)
        self._general.fit(data, settings)
        self._siblings = []
        self._deferred = (data, settings)
        self._structures = {
            int(part.instances.value.structure[0]) for part in data.parts if part.instances
        }
        self.columns = data.columns
        return self

    def finish(self) -> Self:
        """Compute the priors by folds: most of the work, deferred until siblings are needed or
        saved.
        """
        if self._deferred is None:
            return self
        data, settings = self._deferred
        rng = np.random.default_rng(settings.seed)
        groups = [
            (part.instances.value, data.rows_of(g))
            for g, part in enumerate(data.parts)
            if part.instances
        ]
        priors = self._priors(data, settings) if groups else np.empty(0)
        self._siblings = []
        self._deferred = None
        for table, rows in groups:
            selected = even_ranks(data.cost[rows], self.params.configs, rng)
            ranks = (
                _centred_ranks(data.cost[rows][selected]),
                _centred_ranks(priors[rows])[selected],
            )
            node = table.node.astype(np.int64)
            sizes = table.sizes.astype(np.int64)
            self._siblings.append(
                Sibling(int(table.structure[0]), node, sizes, table.outputs()[selected], *ranks)
            )
        return self

    def _priors(self, data: TrainingData, settings: FitSettings) -> Floats:
        """Return out-of-fold scores of the general ranker, ``(rows,)``, the same for all seeds."""
        settings = replace(settings, seed=0)
        params, cached, scores = _PRIORS.get(data, (None, None, None))
        if scores is None or (params, cached) != (self.params, settings):
            folds = family_folds(data.families, self.params.folds)
            scores = out_of_fold_scores(self._general.clone(), data, folds, settings)
            _PRIORS[data] = self.params, settings, scores
        return scores

    def __getstate__(self) -> dict[str, Any]:
        return vars(self.finish())

    def siblings_of(self, instances: Instances) -> list[Sibling]:
        """Return the training graphs with the same structure and a common configurable node."""
        structure = int(instances.structure[0])
        siblings = self.finish()._siblings if structure in self._structures else []
        return [
            s
            for s in siblings
            if s.structure == structure and np.isin(s.node, instances.node).any()
        ]

    def predict(
        self, rows: Matrix, columns: list[str], instances: LazyInstances | None = None
    ) -> Floats:
        self._require_fitted(columns)
        return self._corrected(self._general.predict(rows, columns, instances), instances)

    def staged(
        self, rows: Matrix, every: int, instances: LazyInstances | None = None
    ) -> Iterator[Floats]:
        self._require_fitted()
        return (
            self._corrected(scores, instances)
            for scores in self._general.staged(rows, every, instances)
        )

    def _corrected(self, scores: Floats, lazy: LazyInstances | None) -> Floats:
        if lazy is None or not (siblings := self.siblings_of(lazy.value)):
            return scores
        weight = self.params.sibling_weight
        return blend(
            [scores, self._predicted(siblings, lazy.value, _centred_ranks(scores))],
            [1 - weight, weight],
        )

    def _predicted(self, siblings: list[Sibling], graph: Instances, prior: Floats) -> Floats:
        """Return the siblings' mean prediction, ``(configs,)``, weighted by `nearness`."""
        predictions = [self._regression(sibling, graph, prior) for sibling in siblings]
        return np.average(
            predictions, axis=0, weights=[nearness(sibling, graph) for sibling in siblings]
        )

    def _regression(self, sibling: Sibling, graph: Instances, prior: Floats) -> Floats:
        """Fit the kernel ridge regression to a sibling and predict a graph's configurations,
        ``(configs,)``.
        """
        params = self.params
        _, sibling_nodes, graph_nodes = np.intersect1d(
            sibling.node, graph.node, return_indices=True
        )
        sibling_outputs = sibling.outputs[:, sibling_nodes]
        outputs = graph.outputs()[:, graph_nodes]

        def kernel(outputs: NDArray[np.int8], prior: Floats) -> Floats:
            return (
                similarity(outputs, sibling_outputs)
                + params.prior_weight * np.outer(prior, sibling.prior)
                + 1
            )

        noise = params.ridge * np.eye(len(sibling_outputs))
        solution = np.linalg.solve(kernel(sibling_outputs, sibling.prior) + noise, sibling.target)
        step = max(1, (1 << 22) // max(1, sibling_outputs[..., 0].size))
        parts = (slice(start, start + step) for start in range(0, len(outputs), step))
        return np.concatenate([kernel(outputs[part], prior[part]) @ solution for part in parts])

    def contributions(
        self, graph: GraphRows, now: int, then: int, walk: Walk | None = None
    ) -> Parts:
        """Return the contributions of the general ranker and of the siblings by node, scaled to
        their shares.
        """
        general = self._general.predict(graph.matrix(), graph.columns, graph.instances)
        scores = self._corrected(general, graph.instances)
        ranks = mean_rank(general)
        difference = float(scores[now] - scores[then])
        parts = self._general.contributions(graph, now, then, walk)
        if graph.instances is not None and (siblings := self.siblings_of(graph.instances.value)):
            by_node = self._sibling_contributions(siblings, graph.instances.value, now, then)
            share = (1 - self.params.sibling_weight) * float(ranks[now] - ranks[then])
            if abs(by_node.difference) <= 1e-12:  # no node of the siblings differs
                share = difference
            parts = Parts.total([parts.scaled_to(share), by_node.scaled_to(difference - share)])
        return replace(parts, members={self.name: difference})

    def _sibling_contributions(
        self, siblings: list[Sibling], table: Instances, now: int, then: int
    ) -> Parts:
        """Return the siblings' contributions by node to the difference of two configurations."""
        nodes = np.flatnonzero(table.codes[now] != table.codes[then])
        walk = replace(table, codes=walk_codes(table.codes[then], table.codes[now], nodes))
        steps = walk_steps(self._predicted(siblings, walk, np.zeros(walk.configs)))
        new, old = (
            {part.nodes: part.text for part in table.parts(config)} for config in (now, then)
        )
        places = tuple(
            Place((node,), new.get((node,), ""), old.get((node,), ""), step)
            for node, step in zip(table.node[nodes].tolist(), steps.tolist(), strict=True)
        )
        total = float(steps.sum())
        return Parts(total, {}, places, {SIBLINGS: total} if places else {})

    def importance(self) -> dict[str, float]:
        self._require_fitted()
        return self._general.importance()

    def _write(self, folder: Path) -> dict[str, Any]:
        (folder / _GENERAL).mkdir()
        self._general.save(folder / _GENERAL)
        siblings = json.dumps(
            [vars(sibling) for sibling in self.finish()._siblings], default=np.ndarray.tolist
        )
        folder.joinpath(_SIBLINGS).write_text(siblings, encoding="utf-8")
        return {"parts": [_GENERAL]}

    def _read(self, folder: Path, state: Mapping[str, Any]) -> None:
        self._general = Ensemble.load(folder / _GENERAL)
        if self._general.columns != self.columns:
            raise ValueError("its general ranker was trained on other columns")
        for entry in json.loads(read_text(folder / _SIBLINGS)):
            nodes = len(entry["node"])
            fields: dict[str, Any] = {
                "node": (int, nodes),
                "sizes": (int, (nodes, 6)),
                "outputs": (np.int8, (-1, nodes, 6)),
                "target": (float, -1),
                "prior": (float, -1),
            }
            arrays = {
                name: np.array(entry[name], dtype).reshape(shape)
                for name, (dtype, shape) in fields.items()
            }
            self._siblings.append(Sibling(int(entry["structure"]), **arrays))
        self._structures = {sibling.structure for sibling in self._siblings}


def similarity(a: NDArray[np.int8], b: NDArray[np.int8]) -> Floats:
    """Return the similarity of layouts ``(a, nodes, 6)`` and ``(b, nodes, 6)``, ``(a, b)`` from 0
    to 1.

    A node scores 1/2 for the same minor-most dimension and another 1/2 for the same layout. The
    similarity averages two terms: the nodes' mean score, and exp((sum of scores - nodes) / 2).

    >>> nodes = np.array([[[0, 1], [1, 0]], [[0, 1], [0, 1]]], np.int8)
    >>> similarity(nodes,
    ...     nodes).round(3).tolist()  # one of two nodes differs: (1/2 + exp(-1/2)) / 2
    [[1.0, 0.553], [0.553, 1.0]]
    """
    same = np.zeros((len(a), len(b)))
    nodes = a.shape[1]
    for node in range(nodes):
        first = a[:, None, node]
        second = b[None, :, node]
        same += 0.5 * (first[..., 0] == second[..., 0]) + 0.5 * (first == second).all(axis=-1)
    return np.asarray(0.5 * same / max(1, nodes) + 0.5 * np.exp((same - nodes) / 2))


def nearness(sibling: Sibling, instances: Instances) -> float:
    """Return 2^-d for the mean absolute difference d of the common nodes' log2 output sizes."""
    _, sibling_nodes, graph_nodes = np.intersect1d(
        sibling.node, instances.node, return_indices=True
    )
    shapes = sibling.sizes[sibling_nodes], instances.sizes[graph_nodes]
    first, second = (np.log2(np.maximum(shape, 1)).sum(axis=1) for shape in shapes)
    return float(2.0 ** -np.abs(first - second).mean())


def _centred_ranks(values: Floats) -> Floats:
    return 2 * mean_rank(values) - 1
