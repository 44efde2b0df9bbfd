"""Programs that were seen at another batch size: corrected by what their siblings measured, node by node."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import Kind
from xlarank.features.attribution import walk_codes, walk_steps
from xlarank.features.instances.graph_instances import Instances, LazyInstances
from xlarank.features.rows import even_ranks
from xlarank.models.arrays import Floats, Integers, Matrix
from xlarank.models.base import Learned, Ranker
from xlarank.models.explanation.parts import Parts, Place, Rows
from xlarank.models.objectives import mean_rank
from xlarank.models.params import Between, Number, RankerParams, Whole, nested_params, param
from xlarank.models.rankers.ensemble import Ensemble, EnsembleParams, blend
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.validation.curves import out_of_fold_scores
from xlarank.models.validation.folds import family_folds, whole_folds

#: In place of a column: the contribution of sibling graphs.
SIBLINGS: Final = "known__siblings__ranks"
#: Scores nearer to each other than this are one score.
_SAME: Final = 1e-12
_GENERAL: Final = "general"
_SIBLINGS: Final = "siblings.json"
#: Priors of training data: what they were fitted with, and ``(rows,)`` scores.
_PRIORS: Final[WeakKeyDictionary[TrainingData, tuple[SiblingParams, FitSettings, Floats]]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Sibling:
    """A training graph, reduced to what its siblings are compared with."""

    structure: int  # hash of its opcodes and edges
    node: Integers  # ``(nodes,)`` numbers of its configurable nodes
    sizes: Integers  # ``(nodes, 6)`` their output shapes
    outputs: NDArray[np.int8]  # ``(configs, nodes, 6)`` layouts set on their outputs, -1 for none
    target: Floats  # ``(configs,)`` from -1 for the fastest to 1
    prior: Floats  # ``(configs,)`` the same of a general ranker that did not see the graph's family

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Of lists for the arrays; raises any error for what is damaged."""
        node, sizes = np.array(plain["node"], np.int64), np.array(plain["sizes"], np.int64).reshape(-1, 6)
        outputs = np.array(plain["outputs"], np.int8).reshape(-1, len(node), 6)
        target, prior = (np.array(plain[name], np.float64) for name in ("target", "prior"))
        if not len(outputs) == len(target) == len(prior):
            raise ValueError("a sibling's configurations and ranks differ in number")
        return cls(int(plain["structure"]), node, sizes, outputs, target, prior)


def _whole_general(kind: Kind, given: EnsembleParams | Mapping[str, Any]) -> EnsembleParams:
    """Those given, or some of them, else the defaults of the kind."""
    return Ensemble(given, kind=kind).params


@dataclass(frozen=True, kw_only=True)
class SiblingParams(RankerParams):
    """Parameters of `SiblingRanker`.

    Attributes:
        general: of the `Ensemble` that ranks graphs without siblings.
        folds: maximum number of folds for the priors of siblings.
        configs: configurations kept of each graph.
        sibling_weight: weight of the ranks by siblings beside those of the general ranker, 0 to 1.
        ridge, prior_weight: variances of the noise of a rank, and of the weight of the general ranker's rank.
    """

    ranker: ClassVar[str] = "sibling"

    general: EnsembleParams = nested_params(_whole_general)
    folds: int = param(5, Whole(2))
    configs: int = param(200, Whole(2))
    sibling_weight: float = param(0.5, Number(0, 1), Between(0.1, 1.0))
    ridge: float = param(0.03, Number(0, above=True), Between(0.003, 0.3, log=True))
    prior_weight: float = param(1.0, Number(0), Between(0.1, 10.0, log=True))


class SiblingRanker(Ranker[SiblingParams]):
    """An `Ensemble`, corrected by training graphs of the same structure (siblings).

    A sibling's ranks t are explained by the general ranker's rank p of the same configurations (of folds without
    its family) and by the layouts of its outputs, node by node: kernel ridge regression with the kernel
    ``w p p' + k + 1``, where k compares configurations (`alike`). The solution is then read off at the
    configurations asked for. Several siblings are averaged, those of like shapes counting more, and the ranks of
    the result and of the general ranker are mixed. Without siblings, the general ranker is used alone.

    The 8th place of the Kaggle competition ranked by the most similar training graph alone, with trees.
    """

    params_class = SiblingParams
    file_names = (_SIBLINGS,)
    part_classes: ClassVar[Mapping[str, type[Ranker[Any]]]] = {_GENERAL: Ensemble}

    def __init__(self, params: SiblingParams | Mapping[str, Any] | None = None, *, kind: Kind) -> None:
        super().__init__(params, kind=kind)
        self._general = Ensemble(self.params.general, kind=kind)
        self._known: list[Sibling] = []
        self._waiting: tuple[TrainingData, FitSettings] | None = None  # what `_known` will be made of
        self._structures: set[int] = set()

    def _fit(self, data: TrainingData, settings: FitSettings) -> None:
        self._general.fit(data, settings)
        self._known, self._waiting = [], (data, settings)
        found = (part.instances for part in data.parts)
        self._structures = {int(lazy.value.structure[0]) for lazy in found if lazy is not None}

    def finish(self) -> Self:
        """Fit the folds that priors come from, which are most of the work.

        `fit` leaves them until a sibling is ranked: where whole families are held out none ever is.
        """
        if self._waiting is None:
            return self
        data, settings = self._waiting
        rng = np.random.default_rng(settings.seed)
        lazies = [(part.instances, data.rows_of(group)) for group, part in enumerate(data.parts)]
        groups = [(lazy.value, rows) for lazy, rows in lazies if lazy is not None]
        priors = self._priors(data, settings) if groups else np.empty(0)
        self._known, self._waiting = [], None
        for table, rows in groups:
            kept = even_ranks(data.cost[rows], self.params.configs, rng)
            ranks = _centred(data.cost[rows][kept]), _centred(priors[rows])[kept]
            node, sizes = table.node.astype(np.int64), table.sizes.astype(np.int64)
            self._known.append(Sibling(int(table.structure[0]), node, sizes, table.outputs()[kept], *ranks))
        return self

    def _priors(self, data: TrainingData, settings: FitSettings) -> Floats:
        """``(rows,)`` out-of-fold scores of the general ranker, the same for every seed: fitted once for all."""
        settings = replace(settings, seed=0)
        params, fitted, scores = _PRIORS.get(data, (None, None, None))
        if scores is None or (params, fitted) != (self.params, settings):
            folds = whole_folds(family_folds(data.families, self.params.folds))
            scores = out_of_fold_scores(self._general.clone(), data, folds, settings)
            _PRIORS[data] = self.params, settings, scores
        return scores

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles hold: what was learned, without the data that deferred fitting needs."""
        return vars(self.finish())

    def siblings_of(self, instances: Instances) -> list[Sibling]:
        """Training graphs of the same structure with configurable nodes in common."""
        structure = int(instances.structure[0])
        known = self.finish()._known if structure in self._structures else []
        return [one for one in known if one.structure == structure and np.isin(one.node, instances.node).any()]

    def _scores(self, rows: Matrix, instances: LazyInstances | None) -> Floats:
        return self._corrected(self._general.predict(rows, self.columns, instances), instances)

    def _staged(self, rows: Matrix, every: int, instances: LazyInstances | None) -> Iterator[Floats]:
        for score in self._general.staged(rows, every, instances):
            yield self._corrected(score, instances)

    def _corrected(self, score: Floats, lazy: LazyInstances | None) -> Floats:
        known = self.siblings_of(lazy.value) if lazy else []
        if not lazy or not known:
            return score
        weight, nearest = self.params.sibling_weight, self._averaged(known, lazy.value, lazy.value, _centred(score))
        return blend([score, nearest], [1 - weight, weight])

    def _averaged(self, known: list[Sibling], graph: Instances, asked: Instances, prior: Floats) -> Floats:
        """``(configs,)`` what siblings say of those of ``asked``, those near ``graph`` more."""
        found = [self._read_off(one, asked, prior) for one in known]
        return np.average(found, axis=0, weights=[nearness(one, graph) for one in known])

    def _read_off(self, known: Sibling, instances: Instances, prior: Floats) -> Floats:
        """``(configs,)`` a sibling's solution at the configurations asked for."""
        _, theirs, mine = np.intersect1d(known.node, instances.node, return_indices=True)
        learned, asked = known.outputs[:, theirs], instances.outputs()[:, mine]
        weight = self.params.prior_weight
        kernel = alike(learned, learned) + weight * np.outer(known.prior, known.prior) + 1
        solution = np.linalg.solve(kernel + self.params.ridge * np.eye(len(kernel)), known.target)
        step = max(1, (1 << 22) // max(1, learned[..., 0].size))
        parts = [slice(at, at + step) for at in range(0, len(asked), step)]
        across = (alike(asked[part], learned) + weight * np.outer(prior[part], known.prior) + 1 for part in parts)
        return np.concatenate([kernel @ solution for kernel in across])

    def _parts(self, rows: Rows, now: int, then: int, difference: float) -> Parts:
        """Scale the general ranker's contributions to what its rank counts for; siblings add theirs node by node.

        Their ranks are followed from one configuration to the other (`xlarank.features.attribution`).
        """
        general = self._general.contributions(rows, now, then)
        siblings = None if rows.instances is None else self._of_siblings(rows.instances.value, now, then)
        if siblings is None:
            return general
        rest = difference - siblings.difference
        scale = rest / general.difference if abs(general.difference) > _SAME else 0.0
        return Parts.total([general.scaled(scale), siblings])

    def _of_siblings(self, table: Instances, now: int, then: int) -> Parts | None:
        """What siblings add to the difference of two configurations; None where there are none."""
        known = self.siblings_of(table)
        if not known:
            return None
        nodes = np.flatnonzero(table.codes[now] != table.codes[then])
        walk = replace(table, codes=walk_codes(table.codes[then], table.codes[now], nodes))
        steps = walk_steps(self._averaged(known, table, walk, np.zeros(walk.configs)))
        ours, theirs = (
            {part.nodes[0]: part.text for part in table.parts(config) if len(part.nodes) == 1}
            for config in (now, then)
        )
        places = tuple(
            Place((node,), ours.get(node, ""), theirs.get(node, ""), float(step))
            for node, step in zip(map(int, table.node[nodes]), steps, strict=True)
        )
        total = float(steps.sum())
        return Parts(total, {}, places, {SIBLINGS: total} if places else {})

    def _gains(self) -> dict[str, float]:
        return self._general.importance()

    def _learned(self) -> Learned:
        self.finish()
        plain = json.dumps([vars(known) for known in self._known], default=np.ndarray.tolist)
        return Learned(files={_SIBLINGS: plain}, parts={_GENERAL: self._general})

    def _restore(self, learned: Learned) -> None:
        general = learned.parts[_GENERAL]
        assert isinstance(general, Ensemble)
        if general.columns != self.columns:
            raise ValueError("its general ranker was trained on other columns")
        self._general = general
        self._known = [Sibling.of_plain(plain) for plain in json.loads(learned.files[_SIBLINGS])]
        self._structures = {known.structure for known in self._known}


def alike(one: NDArray[np.int8], other: NDArray[np.int8]) -> Floats:
    """How alike configurations are, ``(a, b)`` of ``(a, nodes, 6)`` and ``(b, nodes, 6)``, 0 to 1.

    Of two layouts of an output half counts for the same minor-most dimension, half for the same layout; nothing set
    is a layout of its own. Half is the mean over nodes, half exp(-nodes that differ / 2).

    >>> nodes = np.array([[[0, 1], [1, 0]], [[0, 1], [0, 1]]], np.int8)
    >>> alike(nodes, nodes).round(3).tolist()  # one of two nodes differs: (1/2 + exp(-1/2)) / 2
    [[1.0, 0.553], [0.553, 1.0]]
    """
    same = np.zeros((len(one), len(other)))
    for node in range(one.shape[1]):
        mine, yours = one[:, None, node], other[None, :, node]
        same += 0.5 * (mine[..., 0] == yours[..., 0]) + 0.5 * (mine == yours).all(axis=-1)
    nodes = max(1, one.shape[1])
    kernel: Floats = 0.5 * same / nodes + 0.5 * np.exp((same - one.shape[1]) / 2)
    return kernel


def nearness(known: Sibling, instances: Instances) -> float:
    """1 for equal shapes, half for each factor of two between the sizes of the nodes' outputs, on average."""
    _, theirs, mine = np.intersect1d(known.node, instances.node, return_indices=True)
    logs = [np.log2(np.maximum(sizes, 1)).sum(axis=1) for sizes in (known.sizes[theirs], instances.sizes[mine])]
    return float(2.0 ** -np.abs(logs[0] - logs[1]).mean())


def _centred(values: Floats) -> Floats:
    """Ranks from -1 for the smallest to 1."""
    return 2 * mean_rank(values) - 1
