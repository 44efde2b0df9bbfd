"""What the difference between two scores is made of.

Every part is the model's own: the exact contributions of a tree ensemble to its columns (Lundberg et al. 2018,
*Consistent Individualized Feature Attribution for Tree Ensembles*, as LightGBM and XGBoost compute them), and the
scores of instances where a score is their sum. Parts always add up to the difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ModelError
from xlarank.features.attribution import Walk, walk_codes, walk_steps
from xlarank.features.instances.instances import Instances, LazyInstances
from xlarank.features.rows import GraphRows
from xlarank.models.base import Ranker
from xlarank.models.explanation.votes import vote_columns, vote_steps
from xlarank.models.objectives.labels import mean_rank
from xlarank.models.rankers.ensemble import Ensemble
from xlarank.models.rankers.lightgbm import LightGBMRanker
from xlarank.models.rankers.pair_vote import PairVote
from xlarank.models.rankers.sibling import SiblingRanker, nearness
from xlarank.models.rankers.sum_pooled import SumPooled
from xlarank.models.rankers.xgb_pairwise import XGBPairwise
from xlarank.models.trained import TrainedModel

Floats = NDArray[np.float64]

#: In place of a column: what the graphs of a sibling ranker say.
SIBLINGS: Final = "known__siblings__ranks"
#: Scores nearer to each other than this share of their size are one score.
_SAME: Final = 1e-12


@dataclass(frozen=True)
class Place:
    """A node, or a pair of nodes that meet over a tensor, and what its instance adds to the difference.

    Attributes:
        nodes: the node, or consumer (or first reader) and producer (or next reader), as numbered in the graph.
        now, then: what stands there in either configuration, for people.
        value: score of the instance now minus its score then.
    """

    nodes: tuple[int, ...]
    now: str
    then: str
    value: float


@dataclass(frozen=True)
class Parts:
    """A difference between two scores of one graph, taken apart; below 0 where the first is the faster.

    ``difference == sum(columns) + sum(places)``, ``sum(places) == sum(instance_columns)`` and, where there was a
    walk to follow, ``sum(columns) == sum(nodes)``, up to the rounding of floating point numbers (XGBoost's
    contributions are float32).

    Attributes:
        difference: score of the first configuration minus that of the second.
        columns: wide-row column -> its contribution; columns without any are left out.
        places: nodes and pairs whose instance differs.
        instance_columns: the same as ``places``, by column of the instances.
        nodes: the same as ``columns``, by node of the graph.
        members: name of a ranker -> its share of the difference; one entry unless rankers are combined.
    """

    difference: float
    columns: dict[str, float] = field(default_factory=dict)
    places: tuple[Place, ...] = ()
    instance_columns: dict[str, float] = field(default_factory=dict)
    members: dict[str, float] = field(default_factory=dict)
    nodes: dict[int, float] = field(default_factory=dict)

    def scaled(self, factor: float) -> Parts:
        """All parts times a factor."""
        return Parts(
            self.difference * factor,
            {name: value * factor for name, value in self.columns.items()},
            tuple(replace(place, value=place.value * factor) for place in self.places),
            {name: value * factor for name, value in self.instance_columns.items()},
            {name: value * factor for name, value in self.members.items()},
            {node: value * factor for node, value in self.nodes.items()},
        )

    @classmethod
    def total(cls, parts: Iterable[Parts]) -> Parts:
        """The sum of differences; the same place of several is one."""
        difference = 0.0
        columns: dict[str, float] = {}
        instance_columns: dict[str, float] = {}
        members: dict[str, float] = {}
        nodes: dict[int, float] = {}
        places: dict[tuple[tuple[int, ...], str, str], float] = {}
        for part in parts:
            difference += part.difference
            for found, more in (
                (columns, part.columns), (instance_columns, part.instance_columns), (members, part.members),
            ):  # fmt: skip
                for name, value in more.items():
                    found[name] = found.get(name, 0.0) + value
            for node, value in part.nodes.items():
                nodes[node] = nodes.get(node, 0.0) + value
            for place in part.places:
                key = place.nodes, place.now, place.then
                places[key] = places.get(key, 0.0) + place.value
        return cls(
            difference,
            columns,
            tuple(Place(*key, value) for key, value in places.items()),
            instance_columns,
            members,
            nodes,
        )


@dataclass(frozen=True, eq=False)
class Rows:
    """The distinct configurations of one graph, as rankers are given them.

    Attributes:
        matrix: ``(rows, columns)`` float32.
        columns: their names.
        instances: what they are made of, where they have any.
        walk: from the second configuration that is explained to the first, where nodes are asked for.
    """

    matrix: NDArray[np.float32]
    columns: list[str]
    instances: LazyInstances | None = None
    walk: Walk | None = None

    @classmethod
    def of(cls, graph: GraphRows, walk: Walk | None = None) -> Rows:
        return cls(graph.matrix(), graph.columns, graph.instances, walk)


def model_parts(model: TrainedModel, rows: Rows, now: int, then: int) -> Parts:
    """Why a model scores row ``now`` as it does and not as row ``then``: the mean over its seeds."""
    each = [difference_parts(ranker, rows, now, then) for ranker in model.rankers]
    return Parts.total(part.scaled(1 / len(each)) for part in each)


def difference_parts(ranker: Ranker[Any], rows: Rows, now: int, then: int) -> Parts:
    """The same for one ranker; raises `ModelError` for a kind of ranker that cannot be taken apart."""
    if isinstance(ranker, Ensemble):
        return _ensemble(ranker, rows, now, then)
    if isinstance(ranker, SiblingRanker):
        return _sibling(ranker, rows, now, then)
    scores = ranker.predict(rows.matrix, rows.columns, rows.instances)[[now, then]]
    difference = float(scores[0] - scores[1])
    members = {ranker.name: difference}
    if isinstance(ranker, SumPooled) and rows.instances is not None and ranker._instance_columns:
        places, columns = _instances(ranker, rows.instances.value, now, then)
        return Parts(difference, {}, places, columns, members)
    if isinstance(ranker, PairVote):
        columns = vote_columns(ranker, rows.matrix, now, then)
        nodes = vote_steps(ranker, rows.matrix, rows.walk) if rows.walk is not None else {}
        return Parts(difference, columns, members=members, nodes=nodes)
    columns = _columns(ranker, rows.matrix[[now, then]], rows.columns)
    return Parts(difference, columns, members=members, nodes=_nodes(ranker, rows))


def _ensemble(ranker: Ensemble, rows: Rows, now: int, then: int) -> Parts:
    """Members' parts, each scaled to the difference of the ranks that it gives.

    An ensemble's score is the weighted mean of its members' ranks within the graph, and a rank has no parts of its
    own. A member's contributions add up to its own difference of scores; times (difference of ranks) /
    (difference of scores) they add up to what it brings to the ensemble's.
    """
    total = sum(ranker._weights.values())
    found = []
    for name, member in ranker._members.items():
        rank = mean_rank(member.predict(rows.matrix, rows.columns, rows.instances))
        step = float(rank[now] - rank[then]) * ranker._weights[name] / total
        part = difference_parts(member, rows, now, then)
        found.append(part.scaled(step / part.difference if step else 0.0))
    return Parts.total(found)


def _sibling(ranker: SiblingRanker, rows: Rows, now: int, then: int) -> Parts:
    """The general ranker's parts, scaled to what its rank counts for, and what siblings say node by node.

    Siblings compare whole configurations, so their say is followed from one configuration to the other as columns
    are (`xlarank.features.attribution`).
    """
    scores = ranker.predict(rows.matrix, rows.columns, rows.instances)
    difference = float(scores[now] - scores[then])
    general = _ensemble(ranker._general, rows, now, then)
    known = ranker.siblings_of(rows.instances.value) if rows.instances is not None else []
    if not known or rows.instances is None:
        return replace(general, members={ranker.name: difference})
    table = rows.instances.value
    nodes = np.flatnonzero(table.codes[now] != table.codes[then])
    walk = replace(table, codes=walk_codes(table.codes[then], table.codes[now], nodes))
    said = np.average(
        [ranker._read_off(one, walk, np.zeros(walk.configs)) for one in known],
        axis=0,
        weights=[nearness(one, table) for one in known],
    )
    steps = walk_steps(said)
    texts = [
        {part.nodes[0]: part.text for part in table.parts(config) if len(part.nodes) == 1} for config in (now, then)
    ]
    ids = [int(node) for node in table.node[nodes]]
    places = tuple(
        Place((node,), texts[0].get(node, ""), texts[1].get(node, ""), float(step))
        for node, step in zip(ids, steps, strict=True)
    )
    siblings = Parts(float(steps.sum()), {}, places, {SIBLINGS: float(steps.sum())} if places else {})
    rest = difference - siblings.difference
    scale = rest / general.difference if abs(general.difference) > _SAME else 0.0
    return replace(Parts.total([general.scaled(scale), siblings]), members={ranker.name: difference})


def _nodes(ranker: Ranker[Any], rows: Rows) -> dict[int, float]:
    """What each node brings on the walk, of a ranker that scores rows one by one."""
    if rows.walk is None:
        return {}
    steps = walk_steps(ranker.predict(rows.walk.matrix, rows.columns))
    return {int(node): float(step) for node, step in zip(rows.walk.nodes, steps, strict=True)}


def _columns(ranker: Ranker[Any], values: NDArray[np.float32], names: list[str]) -> dict[str, float]:
    """Contributions of columns to the difference of two rows ``(2, columns)``, first minus second."""
    matrix = score_contributions(ranker, values)
    change = matrix[0] - matrix[1]
    return {names[i]: float(change[i]) for i in np.flatnonzero(change)}


def score_contributions(ranker: Ranker[Any], values: NDArray[np.float32]) -> Floats:
    """``(rows, columns + 1)`` what each column adds to each score, and last what all rows share.

    ``values`` ``(rows, columns)`` are what the trees choose their columns from: wide rows, or instances for a
    ranker on sums. Rows add up to the score of the row (or instance). Raises `ModelError` for a ranker without
    trees of its own.
    """
    if isinstance(ranker, LightGBMRanker) and not isinstance(ranker, PairVote):
        own = np.asarray(
            ranker._trees().predict(values[:, ranker._used], pred_contrib=True, num_threads=ranker._threads),
            np.float64,
        )
    elif isinstance(ranker, XGBPairwise):
        import xgboost

        data = xgboost.DMatrix(values[:, ranker._used])
        own = np.asarray(ranker._trees().predict(data, pred_contribs=True), np.float64)
    else:
        raise ModelError(
            f"the model {ranker.name} cannot be taken apart",
            expected="a ranker on trees",
            do="train another model",
        )
    found = np.zeros((len(values), values.shape[1] + 1))
    found[:, ranker._used] = -own[:, :-1]  # trees sum to a relevance, higher is faster
    found[:, -1] = -own[:, -1]
    if ranker._init_score is not None:
        found[:, ranker._init_score.column] -= ranker._init_score.relevance(values)
    return found


def _instances(
    ranker: SumPooled, table: Instances, now: int, then: int
) -> tuple[tuple[Place, ...], dict[str, float]]:
    """Scores of the instances at every place of two configurations, first minus second."""
    ours, theirs = table.parts(now), table.parts(then)
    different = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.instance != b.instance]
    if not different:
        return (), {}
    held = np.array([[a.instance, b.instance] for a, b in different])
    used, place = np.unique(held, return_inverse=True)
    values = score_contributions(ranker, table.values[used])
    first, second = (values[place.reshape(held.shape)[:, side]] for side in (0, 1))
    change = first - second
    places = tuple(
        Place(a.nodes, a.text, b.text, float(value))
        for (a, b), value in zip(different, change[:, :-1].sum(axis=1), strict=True)
    )
    by_column = change[:, :-1].sum(axis=0)
    return places, {table.columns[i]: float(by_column[i]) for i in np.flatnonzero(by_column)}
