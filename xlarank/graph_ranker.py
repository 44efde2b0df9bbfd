"""Model with the scikit-learn estimator API, for notebooks and experiments."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self, cast

import numpy as np
from numpy.typing import NDArray

from xlarank.data import errors
from xlarank.data.errors import ModelError, ParameterError, did_you_mean
from xlarank.data.graph import GraphLike, Kind, as_graph
from xlarank.data.hardware import require_hardware
from xlarank.models.estimators import name_of
from xlarank.models.losses import DEFAULT, params_of, specs_of
from xlarank.models.model import Model
from xlarank.models.params import Interval
from xlarank.models.training_data import FitSettings
from xlarank.models.validation.metrics import graph_metrics
from xlarank.pipelines.ranking.model_choice import rows_for_model
from xlarank.pipelines.training.frames import Frame, is_frame, read_frame, rows_by_graph
from xlarank.pipelines.training.graphs import OutOfFold, TrainingRows, graph_list


class GraphRanker:
    """Ranker of configurations, fitted on measured graphs, with the scikit-learn estimator API.

    scikit-learn itself is not needed. A graph is a `LayoutGraph`, a `TileGraph` or the path of an
    npz file; all graphs of one ranker are of one kind. In their place `fit` and `predict` take a
    frame of rows, as `xlarank.load_rows` returns it, with any further columns of numbers.

    Args:
        ranker: one of `xlarank.models.losses.rankers`.
        n_estimators: number of boosting rounds.
        random_state: seed; the same data, parameters and seed give the same scores.
        n_jobs: number of threads; 0 and -1: all cores, None: 1.
        target: hardware to rank for: "tpugraphs" (files of the TpuGraphs dataset) or a chip:
            "tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v6e", "cpu", "nvidia-h200". By default the graphs'
            (`xlarank.data.graph.Graph`). Columns for other hardware are not used.
        estimator: an estimator in place of the ranker, as LightGBM's ``LGBMRanker`` or XGBoost's
            ``XGBRanker``: any with ``fit(X, y, group=)``, of which a copy is fitted, and
            ``predict(X)``. ``y`` is a whole number from 0 to 30 by rank within the graph, higher is
            faster, ``group`` the number of rows of each graph; of more than 10,000 a sample is
            drawn with ``random_state``. Rounds and threads are the estimator's own.
        params: parameters of the ranker; default: those for the kind of graphs.

    Raises `xlarank.data.errors.ParameterError`, a `ValueError`, for an unknown parameter or a bad
    value.

    Attributes:
        model_: the fitted `xlarank.models.model.Model`.
        kind_: "layout" or "tile".
        target_: hardware that it was fitted for.
        feature_names_in_, n_features_in_: columns seen in `fit`, used or not.
        graphs_: names of the graphs that it was fitted on.
        left_out_: graph -> reason why it was not used.

    Examples:
        >>> import xlarank
        >>> kernels = sorted((xlarank.SAMPLE / "npz/tile/cpu/train").glob("bmm*.npz"))
        >>> ranker = xlarank.GraphRanker("ranknet", n_estimators=20, n_jobs=1)
        >>> ranker = ranker.fit(kernels[:3])  # for a CPU, by their folder
        >>> ranker.graphs_, ranker.n_features_in_
        (['bmm__a', 'bmm__b', 'bmm__c'], 611)
        >>> scores = ranker.predict(kernels[3])  # lower is faster
        >>> scores.shape, ranker.score(kernels[3:]) > 0.9  # 1 - slowdown of the best of five
        ((64,), True)
        >>> import lightgbm  # its LGBMRanker needs scikit-learn
        >>> own = lightgbm.LGBMRanker(n_estimators=20, n_jobs=1, verbosity=-1)
        >>> own = xlarank.GraphRanker(estimator=own).fit(kernels[:3])
        >>> own.score(kernels[3:]) > 0.8
        True
        >>> xlarank.GraphRanker("ranknet", num_leafs=5)
        Traceback (most recent call last):
        xlarank.data.errors.ParameterError: 'num_leafs' is not a parameter of ranknet; ...; did you
        mean num_leaves?
    """

    model_: Model

    def __init__(
        self,
        ranker: str = DEFAULT,
        *,
        n_estimators: int = 300,
        random_state: int = 0,
        n_jobs: int | None = -1,
        target: str | None = None,
        estimator: Any = None,
        **params: Any,
    ) -> None:
        self.ranker = ranker
        self.n_estimators = n_estimators
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.target = target
        self.estimator = estimator
        self.params = params
        self._check()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**{name: getattr(self, name) for name in _COMMON}, **self.params}

    def set_params(self, **params: Any) -> Self:
        """Set parameters for the next `fit`; a `ParameterError` changes nothing."""
        vars(self).update(vars(type(self)(**{**self.get_params(), **params})))
        return self

    def fit(self, graphs: Iterable[GraphLike] | Frame, y: object = None) -> Self:
        """Fit on measured graphs or rows; ``y`` is ignored, runtimes come with them.

        Graphs without runtimes, or with equal ones, are left out (``left_out_``). Raises
        `ModelError` for graphs of two kinds or none to fit on, and `ParameterError` for anything
        but graphs, and for graphs for unknown or several hardware if no ``target`` is given.
        """
        self._check()
        rows = TrainingRows.of(graphs, self.target)
        model = rows.fit(self.unfitted(rows.collection.kind), self.settings)
        return self._set_fitted(model, rows.left_out)

    def predict(self, graph: GraphLike | Frame) -> NDArray[np.float64]:
        """Return scores ``(configs,)`` of a graph or ``(rows,)`` of a frame, lower is faster.

        They are comparable within a graph. Raises `ModelError`.
        """
        model = self.fitted_model
        if not is_frame(graph):
            rows = rows_for_model(as_graph(cast(GraphLike, graph)), model)
            return model.score(rows)[rows.group]
        _, table = read_frame(cast(Frame, graph))
        scores = np.empty(len(table))
        for positions, rows in rows_by_graph(table):
            scores[positions] = model.score(rows)
        return scores

    def score(self, graphs: Iterable[GraphLike], y: object = None) -> float:
        """Return the mean of Kaggle's score over measured graphs, higher is better.

        It is Kendall's tau for layouts and 1 - slowdown of the best of five for tiles. Raises
        `ModelError` before `fit`, and for a graph without runtimes that differ.
        """
        model = self.fitted_model
        scores = []
        for graph in graph_list(graphs):
            rows = rows_for_model(as_graph(graph), model)
            if not (rows.labelled and rows.rankable):
                raise ModelError(f"{rows.name} cannot be scored", expected="runtimes that differ")
            predicted = model.score(rows)[rows.group]
            metrics = graph_metrics(self.kind_, predicted, rows.cost, rows.group)
            scores.append(metrics["score"])
        return float(np.mean(scores))

    def save(self, folder: str | Path, collection: str | None = None) -> Model:
        """Write the model into a folder, which `load`, `rank` and ``--model-from`` take.

        Saved into ``models/<collection>`` of a workspace, it is the model of that collection. The
        name of the ``collection`` is kept in its card. Of estimators, those of LightGBM and XGBoost
        are saved as their text; nothing is pickled. Raises `ModelError` before `fit` and for
        another estimator, and `WorkspaceError` for a folder that cannot be written.
        """
        card = self.fitted_model.require_card()
        if self.estimator is not None:
            self.model_.members[0].booster.text()  # raises before the folder is made
        card = replace(card, collection=collection or card.collection)
        self.model_ = self.model_.save(Path(folder), card)
        return self.model_

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a model that `save` or the command ``train`` wrote; raises `ModelError`.

        A saved estimator is read as its fitted trees: it predicts, but cannot be fitted again.
        """
        model = Model.load(Path(folder))
        card = model.require_card()
        ranker = cls(
            model.name,
            n_estimators=max(1, card.rounds),
            random_state=model.members[0].seed if model.members else 0,
            target=card.target or None,
            **model.params,
        )
        return ranker._set_fitted(model, {})

    def _set_fitted(self, model: Model, left_out: dict[str, str]) -> Self:
        card = model.require_card()
        self.model_ = model
        self.kind_ = model.kind
        self.target_ = card.target
        self.graphs_ = sorted(card.known_graphs)
        self.left_out_ = left_out
        self.feature_names_in_ = np.array(model.columns, dtype=object)
        self.n_features_in_ = len(model.columns)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def __repr__(self) -> str:
        params = self.get_params()
        if self.estimator is None:
            del params["estimator"]
        shown = [repr(params.pop("ranker")), *(f"{name}={params[name]!r}" for name in params)]
        return f"GraphRanker({', '.join(shown)})"

    def _check(self) -> None:
        """Raise `ParameterError` for unknown names and bad values."""
        if self.estimator is not None:
            name_of(self.estimator)  # raises
            if self.ranker != DEFAULT or self.params:
                given = ", ".join([self.ranker, *self.params])
                got = f"both an estimator and {given} are given"
                raise ParameterError(got, do="set the parameters of the estimator itself")
        names = [*specs_of(self.ranker), *_COMMON]
        for name in self.params:
            if name not in names:
                got = f"{name!r} is not a parameter of {self.ranker}"
                raise ParameterError(got, expected=", ".join(names), do=did_you_mean(name, names))
        params_of(self.ranker, "layout", self.params)
        Interval(1, errors.MAX_ROUNDS, whole=True)("n_estimators", self.n_estimators)
        Interval(0, errors.MAX_SEED, whole=True)("random_state", self.random_state)
        Interval(-1, errors.MAX_THREADS, whole=True)("n_jobs", self._threads)
        if self.target is not None:
            require_hardware(self.target)

    def unfitted(self, kind: Kind) -> Model:
        """Return the unfitted model for a kind of graphs."""
        if self.estimator is not None:
            return Model(name_of(self.estimator), kind, estimator=self.estimator)
        return Model.of(self.ranker, kind, self.params)

    @property
    def settings(self) -> FitSettings:
        """Number of rounds, seed and threads; of estimators, one fit at a time."""
        if self.estimator is not None:
            return FitSettings(1, self.random_state, 1)
        return FitSettings(self.n_estimators, self.random_state, self._threads)

    @property
    def _threads(self) -> int:
        return 1 if self.n_jobs is None else self.n_jobs

    @property
    def fitted_model(self) -> Model:
        """The fitted model; raises `ModelError` before `fit`."""
        if not hasattr(self, "model_"):
            raise ModelError("the ranker was not fitted", do="call fit first")
        return self.model_


#: Parameters of the constructor that all rankers share, in order.
_COMMON: Final = tuple(inspect.signature(GraphRanker).parameters)[:-1]


def cross_validate(
    rows: Iterable[GraphLike] | Frame, model: str | GraphRanker = DEFAULT
) -> OutOfFold:
    """Score each graph by a ranker fitted without its family, at the best number of rounds.

    ``rows`` is a frame of one collection as `load_rows` returns it, with any further columns of
    numbers, or a list of measured graphs. The folds of a frame are those of `train`, its columns
    ``fold`` and ``held_out``; without them families are held out. ``model`` is a `GraphRanker`,
    which is not fitted itself, or the name of a ranker.

    Tiles of unseen kernel families are ranked half by the compiler's default, as by the models of
    `train`; `GraphRanker.predict` ranks without this help.

    Raises `xlarank.data.errors.ModelError` for rows that cannot be used.

    Examples:
        >>> import xlarank
        >>> kernels = sorted((xlarank.SAMPLE / "npz/tile/cpu/train").glob("*__a.npz"))
        >>> ranker = xlarank.GraphRanker("ranknet", n_estimators=20, n_jobs=1)
        >>> xlarank.cross_validate(kernels[:5], ranker).mean > 0.5
        True
    """
    ranker = GraphRanker(model) if isinstance(model, str) else model
    training = TrainingRows.of(rows, ranker.target)
    return training.cross_validate(ranker.unfitted(training.collection.kind), ranker.settings)
