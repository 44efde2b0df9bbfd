"""Trees on instances: a configuration's score is the sum of its instances' scores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.features.instances.instances import Instances, LazyInstances
from xlarank.features.instances.table import CANDIDATE_COLUMNS, GRAPH_COLUMNS
from xlarank.models.base import Params
from xlarank.models.objectives.graph_weights import GRAPH_WEIGHTS
from xlarank.models.objectives.labels import TIE_TOLERANCES
from xlarank.models.objectives.pair_matrix import PairTerms, newton_step
from xlarank.models.rankers.columns import chosen_columns, default_columns, suggest_columns
from xlarank.models.rankers.lightgbm import LightGBMRanker
from xlarank.models.ranking_data import RankingData
from xlarank.models.sampling import sample_configs

if TYPE_CHECKING:
    import optuna

Floats = NDArray[np.float64]

_INSTANCES: Final = "instances.json"


@dataclass(frozen=True, eq=False)
class _Group:
    """Configurations of one graph that are learned from: their instances are rows ``first`` on of all."""

    counts: sparse.csr_array
    cost: Floats
    first: int
    weight: float

    def draw(self, most: int, rng: np.random.Generator) -> tuple[sparse.csr_array, Floats]:
        """At most so many of them."""
        if len(self.cost) <= most:
            return self.counts, self.cost
        chosen = np.sort(rng.choice(len(self.cost), most, replace=False))
        return sparse.csr_array(self.counts[chosen]), self.cost[chosen]

    @property
    def part(self) -> slice:
        return slice(self.first, self.first + self.counts.shape[1])


class SumPooled(LightGBMRanker):
    """RankNet's loss on sums over `xlarank.features.instances.instances.Instances`.

    The gradient of a configuration is handed to each of its instances, as often as it holds them; a tree is
    grown on these, and its leaf values are then one joint Newton step (`pair_matrix.newton_step`). TVM's
    cost model sums the scores of stores in the same way (Chen et al. 2018, *Learning to Optimize Tensor
    Programs*).

    Rows without instances (tiles: one kernel, one choice) are instances themselves, one a configuration.
    """

    name = "sum-pooled"

    def __init__(self) -> None:
        super().__init__()
        self._instance_columns: list[str] = []

    @classmethod
    def default_params(cls, kind: Kind = "layout") -> Params:
        # By leave-family-out folds of the sample's train split. Configurations of layouts hold dozens of instances
        # of a leaf, so a little goes a long way; where each is its own instance (tiles), trees must say more.
        tile = kind == "tile"
        return {
            **cls.tree_defaults(kind),
            "learning_rate": 0.1,
            "num_leaves": 15 if tile else 7,
            "min_data_in_leaf": 10,
            "lambda_l2": 0.001,
            "leaf_l2": 0.001 if tile else 0.1,
            "configs": 1000,
            "round_configs": 128,
            "tie_tolerance": 0.003,
            "graph_weight": "equal",
            "columns": default_columns(kind),
        }

    @classmethod
    def suggest(cls, trial: optuna.trial.BaseTrial, kind: Kind = "layout") -> Params:
        return {
            **cls.default_params(kind),
            "learning_rate": trial.suggest_float("learning_rate", 0.02, 0.3, log=True),
            "num_leaves": trial.suggest_int("num_leaves", 4, 48, log=True),
            "min_data_in_leaf": trial.suggest_int("min_data_in_leaf", 5, 100, log=True),
            "feature_fraction": trial.suggest_float("feature_fraction", 0.1, 1.0),
            "bagging_fraction": trial.suggest_float("bagging_fraction", 0.5, 1.0),
            "leaf_l2": trial.suggest_float("leaf_l2", 0.0001, 10.0, log=True),
            "tie_tolerance": trial.suggest_categorical("tie_tolerance", list(TIE_TOLERANCES)),
            "graph_weight": trial.suggest_categorical("graph_weight", list(GRAPH_WEIGHTS)),
            "columns": suggest_columns(trial),
        }

    def fit(self, data: RankingData, params: Params, *, rounds: int, seed: int, threads: int = 0) -> Self:
        own = {**self.default_params(), **params}
        if own["round_configs"] < 2:
            raise ModelError(f"round_configs is {own['round_configs']}", expected="2 or more: pairs are compared")
        rng = np.random.default_rng(seed)
        self.columns, self._threads = data.columns, threads
        groups, values = self._groups(data, own, rng)
        booster = self._grow(groups, values, own, rounds=rounds, seed=seed, rng=rng)
        # as lightgbm.train does: it lets go of the data, and is what will be loaded again to the last bit
        self._booster = lgb.Booster(model_str=booster.model_to_string())
        return self

    def _groups(
        self, data: RankingData, own: Params, rng: np.random.Generator
    ) -> tuple[list[_Group], NDArray[np.float32]]:
        """What is learned from, and the columns used of its instances one below the other."""
        weights = _graph_weights(np.diff(data.indptr), own["graph_weight"])
        groups: list[_Group] = []
        values: list[NDArray[np.float32]] = []
        first = 0
        for g in range(data.groups):
            part = slice(int(data.indptr[g]), int(data.indptr[g + 1]))
            cost = data.cost[part]
            kept = sample_configs(cost, int(own["configs"]), rng, "uniform")
            instances = data.instances_of(g)
            names = [] if instances is None else instances.value.columns
            if g == 0:
                self._instance_columns = names
                self._used = (
                    _chosen(names, own["columns"])
                    if names
                    else chosen_columns(data.columns, own["columns"], own["tier"])
                )
            elif names != self._instance_columns:
                raise ModelError(
                    f"{data.names[g]} and {data.names[0]} have different instances", do="run build-features again"
                )
            if instances is None:
                counts = sparse.csr_array(sparse.eye_array(len(kept), format="csr"))
                values.append(data.parts[g].matrix(kept, self._used))
            else:
                counts = instances.value.counts(kept)
                held = np.flatnonzero(np.bincount(counts.indices, minlength=counts.shape[1]))
                counts = sparse.csr_array(counts[:, held])
                values.append(instances.value.values[held][:, self._used])
            groups.append(_Group(counts, cost[kept], first, weights[g]))
            first += counts.shape[1]
        return groups, np.concatenate(values)

    def _grow(
        self, groups: list[_Group], values: NDArray[np.float32], own: Params, *, rounds: int, seed: int,
        rng: np.random.Generator,
    ) -> lgb.Booster:  # fmt: skip
        binning = {"max_bin": 63, "min_data_in_leaf": own["min_data_in_leaf"], "verbose": -1}
        train = lgb.Dataset(values, np.zeros(len(values)), params=binning).construct()
        params = {
            "objective": "none",
            "metric": "None",
            "learning_rate": 1.0,
            "num_leaves": own["num_leaves"],
            "min_data_in_leaf": own["min_data_in_leaf"],
            "min_sum_hessian_in_leaf": 0.0,
            "feature_fraction": own["feature_fraction"],
            "bagging_fraction": own["bagging_fraction"],
            "bagging_freq": 1,
            "lambda_l2": own["lambda_l2"],
            "seed": seed,
            "deterministic": True,
            "force_col_wise": True,
            "num_threads": self._threads,
            "verbose": -1,
        }
        booster = lgb.Booster(params, train)
        if not any(train.feature_num_bin(i) for i in range(values.shape[1])):
            return booster  # LightGBM refuses a custom objective where nothing can be split
        relevance = np.zeros(len(values))
        for number in range(rounds):
            drawn = [group.draw(int(own["round_configs"]), rng) for group in groups]
            terms = [
                PairTerms.of(counts @ relevance[group.part], cost, own["tie_tolerance"]).scaled(group.weight)
                for group, (counts, cost) in zip(groups, drawn, strict=True)
            ]
            gradient, hessian = np.zeros(len(values)), np.zeros(len(values))
            for group, (counts, _), term in zip(groups, drawn, terms, strict=True):
                gradient[group.part] = counts.T @ term.gradient
                hessian[group.part] = counts.power(2).T @ term.curvature
            hessian += 1e-6 * hessian.max()
            if booster.update(fobj=lambda *_, found=(gradient, hessian): found):
                break
            leaf = _leaves(booster, values, number, self._threads)
            held = [
                counts @ _one_hot(leaf[group.part], int(leaf.max()) + 1)
                for group, (counts, _) in zip(groups, drawn, strict=True)
            ]
            output = own["learning_rate"] * newton_step(terms, held, own["leaf_l2"])
            for place, value in enumerate(output):
                booster.set_leaf_output(number, place, float(value))
            relevance += output[leaf]
        return booster

    def _scores(self, rows: NDArray[np.float32], instances: LazyInstances | None = None) -> Floats:
        booster = self._fitted()
        return next(self._stages(rows, instances, max(1, booster.num_trees())))

    def staged(
        self, rows: NDArray[np.float32], every: int, instances: LazyInstances | None = None
    ) -> Iterator[Floats]:
        return self._stages(rows, instances, every)

    def _stages(self, rows: NDArray[np.float32], instances: LazyInstances | None, every: int) -> Iterator[Floats]:
        booster = self._fitted()
        table = self._table(rows, instances)
        values = rows if table is None else table.values
        used = values[:, self._used]
        total = np.zeros(len(used))
        for start in range(0, max(1, booster.num_trees()), every):
            total = total - np.asarray(
                booster.predict(used, start_iteration=start, num_iteration=every, num_threads=self._threads)
            )
            yield total if table is None else table.sums(total)

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
        if table.columns != self._instance_columns:
            raise ModelError("the instances have other columns", do="run build-features again, or train again")
        if table.configs != len(rows):
            raise ModelError(f"instances of {table.configs} configurations", expected=f"of the {len(rows)} rows")
        return table

    def contributions(self, instances: LazyInstances, config: int) -> list[tuple[str, float]]:
        """What one distinct configuration is made of, and what each part adds to its score, largest first.

        Only differences between configurations of one graph mean something: a part that is positive makes it
        slower than one without.
        """
        table = instances.value
        self._table(np.empty((table.configs, 0), np.float32), instances)
        parts = table.parts(config)
        values = table.values[[part.instance for part in parts]][:, self._used]
        scores = -np.asarray(self._fitted().predict(values, num_threads=self._threads), np.float64)
        found = [(part.text, float(score)) for part, score in zip(parts, scores, strict=True)]
        return sorted(found, key=lambda item: -item[1])

    def _tree_columns(self) -> list[str]:
        return self._instance_columns or self.columns

    def save(self, folder: Path) -> None:
        super().save(folder)
        folder.joinpath(_INSTANCES).write_text(json.dumps(self._instance_columns), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        ranker = super().load(folder)
        try:
            ranker._instance_columns = [
                str(name) for name in json.loads(folder.joinpath(_INSTANCES).read_text(encoding="utf-8"))
            ]
        except (OSError, ValueError, TypeError) as error:
            raise ModelError(
                f"{folder} cannot be read ({error})", expected="a trained model", do="run train again"
            ) from error
        return ranker


def _chosen(columns: list[str], choice: str) -> NDArray[np.intp]:
    """Indices of the columns of instances that a choice of `xlarank.models.rankers.columns.CHOICES` leaves."""
    chosen_columns([], choice)  # refuses what is no choice
    left_out: set[str] = set()
    if choice in ("no_graph", "alone"):
        left_out.update(GRAPH_COLUMNS)
    if choice in ("no_candidates", "alone"):
        left_out.update(CANDIDATE_COLUMNS)
    return np.array([i for i, name in enumerate(columns) if name not in left_out], np.intp)


def _leaves(booster: lgb.Booster, values: NDArray[np.float32], tree: int, threads: int) -> NDArray[np.intp]:
    found = booster.predict(values, start_iteration=tree, num_iteration=1, pred_leaf=True, num_threads=threads)
    return np.asarray(found).reshape(-1).astype(np.intp)


def _one_hot(leaf: NDArray[np.intp], leaves: int) -> Floats:
    """``(instances, leaves)``."""
    return np.eye(leaves)[leaf]


def _graph_weights(sizes: NDArray[np.int64], how: str) -> Floats:
    """``(graphs,)`` by their numbers of rows, 1 on average; raises `ModelError` for another ``how``."""
    if how not in GRAPH_WEIGHTS:
        raise ModelError(f"graph_weight is {how!r}", expected=", ".join(GRAPH_WEIGHTS))
    weights = sizes.astype(np.float64) ** GRAPH_WEIGHTS[how]
    normal: Floats = weights / weights.mean()
    return normal
