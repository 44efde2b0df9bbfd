"""Joint types: counts by hand and by loops, a vocabulary of the training graphs alone, rankers that use them."""

from __future__ import annotations

import json
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.models.contract import fitted, saved
from tests.models.rows import COLUMNS, easy_data, graph_rows
from tests.pipelines.trees import layout_graph
from xlarank.data.errors import ModelError
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.schema import OPCODE
from xlarank.features.assemble import assemble
from xlarank.features.attribution import walk_between
from xlarank.features.block import Tier
from xlarank.features.instances.instances import Instances, LazyInstances
from xlarank.features.recipe import FeatureSettings
from xlarank.features.rows import GraphRows
from xlarank.models import joint_types
from xlarank.models.explanation.parts import Rows, difference_parts
from xlarank.models.fit_settings import FitSettings
from xlarank.models.joint_types import UNKNOWN, JointTypes
from xlarank.models.ranking_data import RankingData
from xlarank.models.registry import ranker_class
from xlarank.models.training_set import TrainingSet
from xlarank.models.validation.curves import validate_fold
from xlarank.models.validation.metrics import kendall_tau

NAMES = ["node__rank__dims", "output__minor_role__row", "input__minor_role__row", "kernel__minor_role__row"]
DOT, RESHAPE = OPCODE["dot"], OPCODE["reshape"]
MODELS = ("lambdarank", "ranknet", "pair-vote", "sum-pooled")


def table(codes: np.ndarray, opcodes: list[int], minor: list[list[int]]) -> Instances:
    """Node ``k`` is of ``opcodes[k]``, rank 2; the output of its row ``r`` has ``minor[k][r]`` minor-most.

    All rows of the same node but their layouts are one instance each.
    """
    widths = [len(rows) for rows in minor]
    first = np.cumsum([0, *widths[:-1]])
    total = sum(widths)
    rows = np.full((total, 18), -1, np.int8)
    rows[:, 0] = [one for node in minor for one in node]
    free = np.concatenate([np.full(width, width > 1) for width in widths])
    values = np.tile(np.float32([2, 7, -1, -1]), (int(free.sum()), 1))
    return Instances(
        columns=list(NAMES),
        values=values,
        codes=codes.astype(np.uint8),
        node=np.arange(len(opcodes)),
        opcode=np.array(opcodes, np.int16),
        first=first,
        rows=rows,
        row_instance=np.where(free, np.cumsum(free) - 1, -1).astype(np.int32),
        request=np.zeros((total, 3), np.int32),
        pairs=np.zeros((0, 5), np.int32),
        pair_first=np.zeros(0, np.int32),
        pair_width=np.zeros(0, np.int32),
        pair_instance=np.zeros(0, np.int32),
        structure=np.zeros(1, np.uint64),
        sizes=np.full((len(opcodes), 6), 2),
    )


def graph_of(name: str, seed: int, *, configs: int = 60, penalty: int = 1) -> GraphRows:
    """Each dot whose minor-most dimension is ``penalty`` costs 100, and nothing else tells."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2, (configs, 6))
    instances = table(codes, [DOT] * 4 + [RESHAPE] * 2, [[0, 1]] * 6)
    cost = 1000 + 100 * (codes[:, :4] == penalty).sum(axis=1) + rng.integers(0, 10, configs)
    rows = graph_rows(name, cost.tolist(), features=rng.random((configs, 3)))
    return replace(rows, instances=LazyInstances(lambda: instances))


def data_of(*graphs: GraphRows) -> RankingData:
    return RankingData.from_graphs(graphs)


@pytest.fixture(scope="module")
def data() -> RankingData:
    return data_of(*(graph_of(f"f{number}__a", number) for number in range(4)))


def key(opcode: int, minor: int) -> tuple[int, ...]:
    return (opcode, 2, 7, -1, -1, minor, *[-1] * 17)


def test_counts_by_hand() -> None:
    # two dots and a reshape with two rows each; the last dot has one row, which all configurations share
    instances = table(
        np.array([[0, 0, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0]]), [DOT, DOT, RESHAPE, DOT], [[0, 1]] * 3 + [[0]]
    )
    types = JointTypes((key(DOT, 0), key(DOT, 1)))
    assert types.columns[:3] == ["types__dot_0__joint", "types__dot_1__joint", "types__unknown_0__joint"]
    found = types.counts(instances)
    assert found.shape == (3, 2 + UNKNOWN)
    assert found[:, :2].tolist() == [[2, 0], [1, 1], [0, 2]]
    assert found[:, 2:].sum(axis=1).tolist() == [1, 1, 1], "the reshapes are unknown"
    assert found[0, 2:].argmax() == found[2, 2:].argmax(), "the same unknown type is in the same column"


def test_unknown_types_are_hashed_alike_in_every_process() -> None:
    for one in (key(RESHAPE, 0), key(DOT, 1)):
        assert joint_types._hashed(one) == zlib.crc32(struct.pack("<23h", *one)) % 16
    assert joint_types._hashed(key(RESHAPE, 0)) == 8


def test_counts_are_those_of_loops(monkeypatch: pytest.MonkeyPatch, data: RankingData) -> None:
    monkeypatch.setattr("xlarank.models.joint_types._BATCH", 7)
    lazy = data.instances_of(0)
    assert lazy is not None
    instances = lazy.value
    types = JointTypes.learn(data, 3)
    assert types is not None
    opcodes = [DOT] * 4 + [RESHAPE] * 2
    for config, found in zip(instances.codes, types.counts(instances), strict=True):
        taken = Counter(key(opcodes[node], int(code)) for node, code in enumerate(config))
        assert [int(count) for count in found[:3]] == [taken.pop(one, 0) for one in types.known]
        assert found[3:].sum() == sum(taken.values())


def test_the_vocabulary_is_what_most_graphs_choose_from() -> None:
    codes = np.array([[0, 0], [1, 1]])
    dots = [table(codes, [DOT, DOT], [[0, 1], [0, 1]]) for _ in range(2)]
    mixed = table(codes, [DOT, RESHAPE], [[0, 2], [0, 1]])
    graphs = [
        replace(graph_rows(f"g{number}__a", [1, 2]), instances=LazyInstances(lambda found=found: found))
        for number, found in enumerate([*dots, mixed])
    ]
    # dot 0: three graphs; dot 1: two; of those of one graph the smaller numbers come first: dot before reshape
    types = JointTypes.learn(data_of(*graphs), 4)
    expected = [key(DOT, 0), key(DOT, 1), *sorted([key(DOT, 2), key(RESHAPE, 0), key(RESHAPE, 1)])[:2]]
    assert types is not None
    assert list(types.known) == expected


def test_a_fold_learns_its_vocabulary_without_what_is_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The held-out graph alone has reshapes: no vocabulary may know them."""
    train = [
        replace(graph_rows(f"f{n}__a", [1, 2, 3, 4]), instances=LazyInstances(lambda found=found: found))
        for n, found in enumerate([table(np.array([[0], [1], [2], [3]]), [DOT], [[0, 1, 2, 3]])] * 3)
    ]
    other = table(np.array([[0], [1], [2], [3]]), [RESHAPE], [[0, 1, 2, 3]])
    held = replace(graph_rows("held__a", [1, 2, 3, 4]), instances=LazyInstances(lambda: other))
    learned: list[JointTypes] = []
    learn = JointTypes.learn.__func__  # type: ignore[attr-defined]

    def watched(cls: type[JointTypes], data: RankingData, most: int) -> JointTypes:
        learned.append(learn(cls, data, most))
        return learned[-1]

    monkeypatch.setattr(JointTypes, "learn", classmethod(watched))
    ranker = ranker_class("ranknet")({"joint_types": 100}, kind="layout")
    validate_fold(TrainingSet("layout", data_of(*train, held)), [3], ranker, FitSettings(3, threads=1))
    (types,) = learned
    assert {one[0] for one in types.known} == {DOT}


@pytest.mark.parametrize("model", MODELS)
def test_they_tell_what_nothing_else_does(model: str, data: RankingData) -> None:
    graph = graph_of("new__a", 99)
    taus = []
    for size in (0, 8):
        ranker = fitted(model, data, rounds=30, joint_types=size, min_data_in_leaf=1)
        taus.append(kendall_tau(ranker.predict(graph.matrix(), graph.columns, graph.instances), graph.row_cost))
    assert abs(taus[0]) < 0.4, "the rows are noise"
    assert taus[1] > 0.65
    assert next(iter(ranker.importance())).startswith("types__dot_")


@pytest.mark.parametrize("model", MODELS)
def test_what_was_saved_is_what_is_loaded(model: str, data: RankingData, tmp_path: Path) -> None:
    ranker = fitted(model, data, joint_types=2)
    files = saved(ranker, tmp_path / "model")
    assert len(json.loads(files["ranker.json"])["joint_types"]) == 2
    again = type(ranker).load(tmp_path / "model")
    graph = graph_of("new__a", 99)
    assert np.array_equal(
        again.predict(graph.matrix(), graph.columns, graph.instances),
        ranker.predict(graph.matrix(), graph.columns, graph.instances),
    )
    assert again.importance() == pytest.approx(ranker.importance())


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param("dot", id="no list"),
        pytest.param([[1, 2]], id="too few numbers"),
        pytest.param([[*key(DOT, 0)[:-1], 0.5]], id="no whole number"),
        pytest.param([[*key(DOT, 0)[:-1], 10**6]], id="too large"),
        pytest.param([[999, *key(DOT, 0)[1:]]], id="no opcode"),
        pytest.param([list(key(DOT, 0))] * 2, id="twice"),
        pytest.param([list(key(DOT, 0))], id="fewer than it was grown on"),
    ],
)
def test_damaged_vocabularies_are_refused(damage: object, data: RankingData, tmp_path: Path) -> None:
    ranker = fitted("ranknet", data, joint_types=4)
    saved(ranker, tmp_path / "model")
    path = tmp_path / "model" / "ranker.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "joint_types": damage}))
    with pytest.raises(ModelError, match="cannot be read"):
        type(ranker).load(tmp_path / "model")


@pytest.mark.parametrize("model", MODELS)
def test_rows_without_their_instances_are_refused(model: str, data: RankingData) -> None:
    ranker = fitted(model, data, joint_types=4)
    graph = graph_of("new__a", 99)
    with pytest.raises(ModelError, match="without their instances"):
        ranker.predict(graph.matrix(), graph.columns)
    assert graph.instances is not None
    with pytest.raises(ModelError, match="instances of 60 configurations"):
        ranker.predict(graph.matrix()[:5], graph.columns, graph.instances)


def test_tiles_have_none() -> None:
    plain, asked = (fitted("ranknet", easy_data(), kind="tile", joint_types=size) for size in (0, 50))
    rows = easy_data().rows
    assert np.array_equal(plain.predict(rows, COLUMNS), asked.predict(rows, COLUMNS))


def test_graphs_with_and_without_instances_do_not_mix(data: RankingData) -> None:
    mixed = data.join(replace(easy_data(graphs=2), instances=()))
    with pytest.raises(ModelError, match="family0__a has no instances"):
        fitted("ranknet", mixed, joint_types=4)


def test_instances_of_unlike_types_are_kept_apart() -> None:
    """Two rows that all columns of instances call equal: a layout of a slot that no column looks at."""
    instances = table(np.array([[0, 1], [1, 0]]), [DOT, DOT], [[0, 1], [0, 1]])
    instances = replace(instances, values=instances.values[:1], row_instance=np.zeros(4, np.int32))
    told = JointTypes((key(DOT, 0), key(DOT, 1))).told(instances)
    assert told.row_instance.tolist() == [0, 1, 0, 1]
    assert told.values[:, 4:6].tolist() == [[1, 0], [0, 1]]
    assert np.array_equal(told.values[:, :4], instances.values[[0, 0]])
    assert told.counts().toarray().tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("model", MODELS)
def test_explanations_add_up(model: str, data: RankingData) -> None:
    graph = graph_of("new__a", 99)
    ranker = fitted(model, data, rounds=10, joint_types=8)
    scores = ranker.predict(graph.matrix(), graph.columns, graph.instances)
    parts = difference_parts(ranker, Rows.of(graph), 0, 1)
    told = sum(parts.columns.values()) + sum(place.value for place in parts.places)
    assert told == pytest.approx(scores[0] - scores[1], abs=1e-9)


@pytest.mark.parametrize("model", ["ranknet", "pair-vote"])
def test_nodes_of_an_explanation_add_up(model: str, graph_file: Callable[..., Path]) -> None:
    """What is between two configurations has types of its own."""
    graph = read_graph(graph_file(layout_graph(3)))
    assert isinstance(graph, LayoutGraph)
    settings = FeatureSettings(Tier.FAST)
    rows = assemble(graph, settings)
    ranker = fitted(model, data_of(rows), rounds=40, joint_types=16, feature_fraction=0.05, min_data_in_leaf=2)
    assert any(column.startswith("types__") for column in ranker.importance())
    parts = difference_parts(
        ranker,
        Rows.of(rows, walk_between(graph, rows, settings, 5, 2)),
        int(rows.group[5]),
        int(rows.group[2]),
    )
    assert parts.nodes
    assert sum(parts.nodes.values()) == pytest.approx(sum(parts.columns.values()), abs=1e-6)
    assert sum(parts.nodes.values()) == pytest.approx(parts.difference, abs=1e-6)
