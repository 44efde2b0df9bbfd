"""Columns, but relayouts and the TPU's time, against slow references, on any programs."""

from fnmatch import fnmatch

import numpy as np
import pytest
from hypothesis import assume, given

from tests.features.helpers import (
    KERNELS,
    SAMPLE,
    SCRAMBLED_GRAPHS,
    fitting_graph,
    graph_of,
    load,
    wrong_columns,
)
from tests.features.oracle_layout import LayoutOracle
from tests.features.oracle_program import CLASS_OF
from tests.features.oracle_tile import TileOracle
from tests.features.test_snapshots import SAMPLE_KERNELS
from tests.graphs import Arrays, examples
from xlarank.data.schema import OPCODE
from xlarank.features.assembly import assemble
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.relayout_quantities import relayout_costs
from xlarank.features.layout.tied_nodes import tied_nodes
from xlarank.features.listwise import copy_ranks
from xlarank.features.program.program_context import CLASS_OF_OPCODE, OPCODE_CLASSES
from xlarank.features.rows import GraphRows
from xlarank.features.tile.tpu_time import tpu_time

EXHAUSTIVE = pytest.mark.exhaustive
#: Small files with many kinds of configurable nodes; in the last, a reduction has its array last.
LAYOUTS = [
    "default/train/dlrm__a",
    pytest.param("random/train/gan__c", marks=EXHAUSTIVE),
    pytest.param("default/train/densenet__b", marks=EXHAUSTIVE),
]
#: Columns that are 0 in programs that make sense, or nearly always.
STILL = (
    *("*__reshape_kernel_*", "change__*_kernel_bytes__share", "*_broadcast_*", "*_slice_*"),
    *("types__kernel_minor_from*", "types__input_minor_from512*"),
    *("neighbourhood__*_convolution_*", "neighbourhood__*_reduce_*", "time__kernel_gradient_*"),
    *("relayout__*", "zscore__relayout_*"),  # no hardware is named
)


def compare(oracle: LayoutOracle | TileOracle, features: GraphRows) -> None:
    expected = {**oracle.config_columns(), **oracle.graph_columns()}
    elsewhere = {*tpu_time.columns, *relayout_costs.columns, *copy_ranks.columns}
    unchecked = set(features.columns) - set(expected) - elsewhere
    assert not unchecked, "a column without an independent reference is one nobody checked"
    assert wrong_columns(features, expected, relative=1e-5, absolute=1e-5) == []


def compare_layout(arrays: Arrays) -> GraphRows:
    context = LayoutContext(graph_of(arrays))
    features = assemble(context.graph)
    compare(LayoutOracle(arrays, context.slot_tensor.tolist(), tied_nodes(context)), features)
    return features


@pytest.mark.slow
@pytest.mark.parametrize("count", [10, pytest.param(160, marks=EXHAUSTIVE)])
def test_programs_that_make_sense(count):
    """Many together move nearly every column: else the references would agree on zeros."""
    graphs = [compare_layout(fitting_graph(seed)) for seed in range(count)]
    if count > 10:
        moves = np.any([(features.config_values != 0).any(axis=0) for features in graphs], axis=0)
        columns = zip(graphs[0].config_columns, moves, strict=True)
        still = [name for name, moved in columns if not moved]
        for name in still:
            assert any(fnmatch(name, pattern) for pattern in STILL), name
        assert len(still) < len(moves) / 8


def test_classes_of_opcodes():
    for opcode, name in CLASS_OF.items():
        assert OPCODE_CLASSES[CLASS_OF_OPCODE[OPCODE[opcode]]] == name


@pytest.mark.slow
@given(arrays=SCRAMBLED_GRAPHS)
@examples(15)
def test_graphs_of_unrelated_shapes(arrays):
    compare_layout(arrays)


@pytest.mark.slow
@pytest.mark.parametrize("place", LAYOUTS)
def test_layouts_of_the_sample(place):
    compare_layout(load(SAMPLE / "layout" / "cpu" / f"{place}.npz"))


@pytest.mark.slow
@given(arrays=KERNELS)
@examples(40)
def test_kernels(arrays):
    oracle = TileOracle(arrays)
    assume(0 not in oracle.tensors[oracle.walked].dims)  # shares of no bytes are undefined
    compare(oracle, assemble(graph_of(arrays)))


@pytest.mark.slow
def test_tiles_of_the_sample():
    for place in (*SAMPLE_KERNELS.split(), "valid/matmul_ta__b"):
        oracle = TileOracle(arrays := load(SAMPLE / f"tile/cpu/{place}.npz"))
        compare(oracle, assemble(graph_of(arrays)))
        assert not oracle.physical, "the sample counts elements"
