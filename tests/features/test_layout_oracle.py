"""Every column of a layout graph against the slow reference, on random graphs and on files of the sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache

import numpy as np
import pytest
from hypothesis import given

from tests.examples import examples, first_is_quick
from tests.features.helpers import SAMPLE, by_name, layout_of, load, shared_shape_graphs
from tests.features.oracle_copies import Copies
from tests.features.oracle_layout import LayoutOracle
from tests.features.oracle_roles import dot_split, reshape_roles
from tests.features.programs import fitting_graph
from tests.graphs import Arrays, layout_arrays, layout_graphs
from xlarank.features.assemble import assemble
from xlarank.features.layout.context import LayoutContext
from xlarank.features.rows import GraphRows

#: Small files with many kinds of configurable nodes; in the last, a reduction has its array last.
FILES = ("default/train/dlrm__a", "random/train/gan__c", "random/valid/mlp__a", "default/train/densenet__b")
#: Graphs of `fitting_graph` that are compared.
SEEDS = 160


def assert_columns(found: dict[str, object], expected: dict[str, object]) -> None:
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-6, err_msg=name)


def both(arrays: Arrays) -> tuple[LayoutOracle, GraphRows]:
    """The slow reference of a graph, and its columns."""
    graph = layout_of(arrays)
    return LayoutOracle(arrays, LayoutContext(graph).slot_tensor.tolist()), assemble(graph)


@cache
def program(seed: int) -> tuple[LayoutOracle, GraphRows]:
    return both(fitting_graph(seed))


def compare(oracle: LayoutOracle, features: GraphRows) -> None:
    """All columns of one graph."""
    assert len(features) == len(oracle.distinct)
    assert_columns(by_name(features), oracle.config_columns())
    assert_columns(features.constants, oracle.graph_columns())


@pytest.mark.parametrize("first", first_is_quick(range(0, SEEDS, 20)))
def test_programs_that_make_sense(first):
    for seed in range(first, first + 20):
        compare(*program(seed))


@given(arrays=shared_shape_graphs())
@examples(40)
def test_graphs_that_hand_shapes_on(arrays):
    compare(*both(arrays))


@given(arrays=shared_shape_graphs(min_configurable=5, max_nodes=12))
@examples(20)
def test_graphs_with_many_configurable_nodes(arrays):
    compare(*both(arrays))


@given(arrays=layout_graphs(relabel=True))
@examples(20)
def test_graphs_of_unrelated_shapes(arrays):
    compare(*both(arrays))


def cases(oracle: LayoutOracle) -> Iterator[str]:
    """What a graph has in it that a column could get wrong."""
    copies = Copies(oracle)
    for pair in copies.pairs:
        yield f"pair {min(3, pair.distance)} apart" + ("" if pair.straight else ", turned")
    for pair in copies.siblings:
        yield "one reader twice" if pair.left == pair.right else "two readers"
    producers = Counter((pair.left, pair.left_slot) for pair in copies.pairs)
    if max(producers.values(), default=0) > 1:
        yield "two producers of one operand"
    for node in oracle.nodes:
        if two_ways(oracle, node):
            yield "two ways to a tensor, one turned"
        if oracle.opcodes[node] == "transpose":
            (operand,) = oracle.operands[node]
            if oracle.tensors[operand].rank != oracle.tensors[node].rank:
                yield "a transpose to another rank"
            elif copies.turn_of(node, operand) is None:
                yield "a transpose that does not say how"
        if oracle.neighbours.degree(node) == 0:
            yield "an isolated node"
        yield oracle.tensors[node].element
        yield "a scalar" if not oracle.tensors[node].rank else "an array"
        if 0 in oracle.tensors[node].dims:
            yield "a size of 0"
    for place in oracle.places:
        out, left, right = (
            () if tensor is None else tensor.dims for tensor in (oracle.slot(place, s) for s in range(3))
        )
        if oracle.kind_of(place) == "dot":
            batch, rows, _ = dot_split(out, left, right)
            yield f"a dot with {batch} batch dimensions"
            yield f"a dot of {rows} x {len(out) - batch - rows} dimensions"
            yield "a matrix times itself" if len(oracle.operands[oracle.configurable[place]]) == 1 else "a dot"
        elif oracle.kind_of(place) == "reshape":
            yield from (f"a reshape, {role}" for roles in reshape_roles(out, left) for role in roles)
            if 1 in out + left:
                yield "a reshape with a size of 1"
        elif oracle.kind_of(place) == "convolution":
            yield "a convolution"
    yield "no configurable node" if not oracle.places else "configurable nodes"
    yield "one configuration" if len(oracle.distinct) == 1 else "configurations"
    yield "computations" if len(oracle.splits) > 2 else "one computation"


def two_ways(oracle: LayoutOracle, node: int) -> bool:
    """Whether a sum reads one node as it is and transposed."""
    ways = [other for other in oracle.operands[node] if oracle.opcodes[other] in ("transpose", "copy")]
    sources = [set(oracle.operands[other]) for other in ways]
    plain = oracle.opcodes[node] == "add" and len(ways) == 2 and sources[0] == sources[1]
    return plain and {oracle.opcodes[other] for other in ways} == {"transpose", "copy"}


#: What no program that makes sense has, or what is too rare in them.
STILL = (
    *("*__reshape_kernel_*", "change__*_kernel_bytes__share", "*_broadcast_*", "*_slice_*"),
    *("types__*_rank*", "types__kernel_minor_from*", "neighbourhood__*_convolution_*", "neighbourhood__*_reduce_*"),
)


@pytest.mark.slow
def test_the_programs_move_nearly_every_column():
    """Else the references would agree on zeros."""
    found = [program(seed)[1] for seed in range(SEEDS)]
    moves = np.any([(features.config_values != 0).any(axis=0) for features in found], axis=0)
    still = [name for name, some in zip(found[0].config_columns, moves, strict=True) if not some]
    assert [name for name in still if not any(fnmatch(name, pattern) for pattern in STILL)] == []
    assert len(still) < len(moves) / 8


def test_the_programs_reach_what_they_are_for():
    seen = Counter(case for seed in range(SEEDS) for case in set(cases(program(seed)[0])))
    wanted = {
        *(f"pair {far} apart" for far in (1, 2, 3)),
        *(f"pair {far} apart, turned" for far in (2, 3)),
        *("one reader twice", "two readers", "two producers of one operand", "two ways to a tensor, one turned"),
        *("a transpose to another rank", "a transpose that does not say how", "an isolated node"),
        *("f32", "bf16", "s8", "f64", "pred", "tuple", "a scalar", "an array", "a size of 0"),
        *(f"a dot with {count} batch dimensions" for count in (0, 1, 2)),
        *(f"a dot of {rows} x {columns} dimensions" for rows in (0, 1, 2) for columns in (0, 1, 2)),
        *("a matrix times itself", "a dot", "a convolution", "a reshape with a size of 1"),
        *(f"a reshape, {role}" for role in ("kept", "split", "merged")),
        *("no configurable node", "configurable nodes", "one configuration", "configurations"),
        *("computations", "one computation"),
    }
    assert sorted(wanted - {case for case, graphs in seen.items() if graphs > 1}) == []


@pytest.mark.parametrize("place", FILES)
def test_files_of_the_sample(place):
    compare(*both(load(SAMPLE / "layout" / "cpu" / f"{place}.npz")))


def test_every_column_has_an_oracle():
    """A column without an independent reference is a column nobody checked."""
    oracle, features = both(layout_arrays())
    assert set(oracle.config_columns()) == set(features.config_columns)
    assert set(oracle.graph_columns()) == set(features.constants)


def test_without_configurable_nodes_ranks_are_in_the_middle():
    arrays = layout_arrays()
    arrays["node_config_ids"] = arrays["node_config_ids"][:0]
    arrays["node_config_feat"] = arrays["node_config_feat"][:, :0]
    found = by_name(assemble(layout_of(arrays)))
    assert {name: values.tolist() for name, values in found.items() if name.startswith("rank__")} == {
        name: [0.5] for name in found if name.startswith("rank__")
    }
    assert all(values.tolist() == [0.0] for name, values in found.items() if not name.startswith("rank__"))
