"""Kinds of kernels, told from the graph alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xlarank.data.graph import TileGraph, read_graph
from xlarank.data.root import SAMPLE
from xlarank.features.tile.kernel_kind import kernel_kinds
from xlarank.features.tile.tile_context import TileContext

TILES = SAMPLE / "npz" / "tile" / "cpu"
#: What each family of the sample was written as; those whose sizes leave more open are below.
KINDS = {
    "conv3x3": "convolution",
    "conv3x3_bias_relu": "convolution",
    "conv3x3_s2": "convolution strided",
    "conv1x1_s2": "convolution strided pointwise",
    "dwconv3x3": "convolution depthwise",
    "dwconv3x3_bias_relu": "convolution depthwise",
    "matmul": "dot",
    "matmul_bias_relu": "dot",
    "matmul_ta": "dot left-transposed",
    "matmul_tb": "dot right-transposed",
    "bmm": "dot batched",
    "bmm_tb": "dot batched right-transposed",
    "maxpool": "reduce-window",
    "reduce_mid": "reduce",
    "expsum": "reduce minor",
    "swish": "elementwise",
    "transpose": "transpose",
}
#: Kernels with a square operand (or result) in which either dimension could be the contracted one.
OPEN = {
    "matmul_tb__a": 4, "matmul_tb__c": 2, "matmul_tb__d": 2, "bmm__b": 2, "bmm__c": 2, "matmul__a": 2,
    "matmul__b": 2, "matmul__c": 2, "matmul_bias_relu__a": 2, "matmul_bias_relu__d": 2, "reduce_mid__b": 2,
    "expsum__a": 2, "matmul_ta__a": 2,
}  # fmt: skip


def sample() -> dict[str, TileGraph]:
    graphs = (read_graph(path, "tile") for path in sorted(TILES.rglob("*.npz")))
    return {graph.name: graph for graph in graphs if isinstance(graph, TileGraph)}


def test_the_sample_is_of_the_kinds_that_it_was_written_as() -> None:
    found = {name: kernel_kinds(TileContext(graph)) for name, graph in sample().items()}
    assert {name for name in found if name.split("__")[0] not in KINDS} == set()
    assert {name: kinds for name, kinds in found.items() if KINDS[name.split("__")[0]] not in kinds} == {}
    assert {name: len(kinds) for name, kinds in found.items() if len(kinds) > 1} == OPEN


@pytest.mark.parametrize("name", ["train/matmul_bias_relu__c", "test/transpose__b", "valid/bmm_tb__a"])
def test_the_name_and_the_runtimes_play_no_part(name: str) -> None:
    graph = read_graph(TILES / f"{name}.npz", "tile")
    assert isinstance(graph, TileGraph)
    other = replace(graph, name="conv3x3__z", runtime=graph.runtime[::-1].copy())
    assert kernel_kinds(TileContext(other)) == kernel_kinds(TileContext(graph))
