"""Explanations: parts that add up, the configurations that are compared, and the picture."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.features.helpers import layout_file, layout_of
from tests.graphs import Node, layout_row, save_npz
from tests.pipelines.trees import LAYOUT, TILE, graph_path, layout_graph
from xlarank.data.errors import HloError, XlarankError
from xlarank.data.graph import read_graph
from xlarank.data.hlo.messages import HloModuleProto
from xlarank.data.schema import OPCODES
from xlarank.data.workspace import Workspace
from xlarank.pipelines.explain import explain
from xlarank.pipelines.rank import rank
from xlarank.pipelines.ranking.score_difference import Explanation, Segment, program_graph, segments_of


def run(workspace: Path, path: Path, **asked: object) -> Explanation:
    return explain(Workspace(workspace), path, collection=LAYOUT, **asked)  # type: ignore[arg-type]


@pytest.fixture
def path(shared_tree: Path) -> Path:
    return graph_path(shared_tree, LAYOUT, "valid", "delta__a")


def test_nodes_causes_and_columns_add_up_to_the_difference(shared_trained: Path, path: Path) -> None:
    ranking = rank(Workspace(shared_trained), path, collection=LAYOUT)
    for config in (0, 5, 11):
        result = run(shared_trained, path, config=config, against=20)
        assert result.difference == pytest.approx(ranking.scores[config] - ranking.scores[20])
        assert sum(node.value for node in result.nodes) + result.rest == pytest.approx(result.difference, abs=1e-9)
        assert sum(result.causes.values()) == pytest.approx(result.difference, abs=1e-6)
        assert sum(result.columns.values()) == pytest.approx(result.difference, abs=1e-6)
        assert {node.node for node in result.nodes} <= {2, 4}
        assert json.dumps(ranking.explain(config, 20).as_json()) == json.dumps(result.as_json())
    with np.load(path) as arrays:
        first, second = arrays["node_config_feat"].swapaxes(0, 1)
    config, against = next(
        (a, b)
        for a, b in combinations(range(len(first)), 2)
        if (first[a] == first[b]).all() and (second[a] != second[b]).any()
    )
    (node,) = run(shared_trained, path, config=config, against=against).nodes
    assert (node.node, node.opcode) == (4, "reshape") and node.now != node.then, "only nodes that differ"


def test_which_configurations_are_compared(shared_trained: Path, path: Path, tmp_path: Path) -> None:
    """The best with the compiler's default where that is a candidate, else with the middle of the ranking."""
    for asked, said in (
        ({"config": 24}, "no configuration 24; expected a number from 0 to 23"),
        ({"config": -1}, "no configuration -1"),
        ({"against": "99"}, "no configuration 99"),
        ({"against": "best"}, "no configuration best; .*or default"),
    ):
        with pytest.raises(XlarankError, match=said):
            run(shared_trained, path, **asked)
    alike = run(shared_trained, path, config=22, against=23)  # the last two repeat the first
    assert alike.difference == 0 and not alike.nodes and not alike.segments and "identical" in alike.notes[0]
    arrays = layout_graph(3)
    kept = (arrays["node_config_feat"] >= 0).any(axis=(1, 2))
    arrays["node_config_feat"], arrays["config_runtime"] = (
        arrays["node_config_feat"][kept], arrays["config_runtime"][kept]
    )  # fmt: skip
    without = save_npz(tmp_path / "own.npz", arrays)
    with pytest.raises(XlarankError, match="no candidate of own is the compiler's default"):
        run(shared_trained, without, against="default")
    assert run(shared_trained, without).against == "the middle of the ranking"
    arrays["node_config_feat"][7] = [layout_row(), layout_row()]
    with_default = save_npz(tmp_path / "with.npz", arrays)
    best = run(shared_trained, with_default)
    assert (best.then, best.against, best.ranks[0]) == (7, "the compiler's default", 1) and best.difference < 0
    assert run(shared_trained, with_default, against="default").then == 7
    itself = run(shared_trained, with_default, config=7)
    assert itself.then != 7 and itself.against == "the middle of the ranking"


def test_segments_are_drawn_and_nodes_named_by_their_module(
    shared_trained: Path, path: Path, tmp_path: Path
) -> None:
    result, svg = run(shared_trained, path, svg=tmp_path / "out" / "segment.svg"), tmp_path / "out" / "segment.svg"
    words = " ".join(ElementTree.fromstring(svg.read_text(encoding="utf-8")).itertext())
    assert f"configuration {result.now} against {result.then}" in words
    drawn = [node for node in result.nodes if node.value]
    assert drawn and all(f"{node.opcode} {node.node}" in words for node in drawn)
    assert "{3,2,1,0}" in words, "layouts stand on the edges"
    assert "prefers-color-scheme" in svg.read_text(encoding="utf-8")
    assert result.called(2) == "2" and result.as_json()["nodes"][0]["name"] is None

    graph = read_graph(path)
    module = HloModuleProto(name="jit_f")
    main = module.computations.add(name="main", id=1, root_id=1)
    for node, opcode in enumerate(graph.opcode):
        added = main.instructions.add(name=f"own_{node}", opcode=OPCODES[opcode], id=node + 1)
        added.metadata.op_name = f"jit(f)/step{node}"
    file = tmp_path / "module.pb"
    file.write_bytes(module.SerializeToString())
    found = run(shared_trained, path, module=file, svg=svg)
    assert found.nodes and found.called(2) == "2 own_2"
    for shown in found.as_json()["nodes"]:
        assert (shown["name"], shown["op_name"]) == (f"own_{shown['node']}", f"jit(f)/step{shown['node']}")
        assert f"own_{shown['node']}" in svg.read_text(encoding="utf-8")
    main.instructions.pop()
    file.write_bytes(module.SerializeToString())
    with pytest.raises(HloError, match=r"^module\.pb: the module has \d+ instructions, and delta__a \d+ nodes"):
        run(shared_trained, path, module=file)


def test_segments_are_connected_nodes_of_one_sign() -> None:
    # 0 and 1 hang together over a matrix, 2 and 3 over a scalar only; 4 reads 1
    nodes = [
        Node("parameter", (8, 128)), Node("add", (8, 128), (0, 0)), Node("reduce", (), (1,)),
        Node("broadcast", (4, 4), (2,)), Node("multiply", (8, 128), (1, 1)),
    ]  # fmt: skip
    graph = layout_of(layout_file(nodes, [0], [[layout_row()]]))
    assert set(program_graph(graph).edges) == {(0, 1), (1, 2), (1, 4)}, "a scalar passes no layout on"
    expected = (Segment((0, 1), -3.0), Segment((3,), -0.9))
    assert segments_of(graph, {0: -1.0, 1: -2.0, 3: -0.9, 4: 0.8}) == expected
    # 5 of 5.2 is more than four fifths: the rest is left out
    assert segments_of(graph, {0: 5.0, 1: 0.1, 4: -0.1}) == (Segment((0,), 5.0),)
    assert segments_of(graph, {}) == () and segments_of(graph, {0: 0.0}) == ()


def test_tiles_have_causes_but_no_nodes(shared_tree: Path, shared_trained: Path, tmp_path: Path) -> None:
    path = next((shared_tree / "npz" / "tile" / "cpu" / "valid").glob("*.npz"))
    found = explain(Workspace(shared_trained), path, collection=TILE)
    assert not found.nodes and found.rest == pytest.approx(found.difference)
    assert sum(found.causes.values()) == pytest.approx(found.difference, abs=1e-6)
    with pytest.raises(XlarankError, match="no segment to draw"):
        explain(Workspace(shared_trained), path, collection=TILE, svg=tmp_path / "x.svg")
    assert not (tmp_path / "x.svg").exists()
