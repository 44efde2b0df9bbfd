"""Every column of a layout graph against the slow reference, on random graphs and on files of the sample."""

from __future__ import annotations

from fnmatch import fnmatch
from functools import cache

import numpy as np
import pytest
from hypothesis import given

from tests.examples import examples
from tests.features.helpers import SAMPLE, by_name, compare_layout, layout_of, load
from tests.features.programs import fitting_graph
from tests.graphs import layout_arrays, layout_graphs
from xlarank.features.assemble import assemble
from xlarank.features.rows import GraphRows

EXHAUSTIVE = pytest.mark.exhaustive
CPU = SAMPLE / "layout" / "cpu"
#: Small files with many kinds of configurable nodes; in the last, a reduction has its array last.
FILES = [
    *("default/train/dlrm__a", "random/train/gan__c"),
    *(pytest.param(place, marks=EXHAUSTIVE) for place in ("random/valid/mlp__a", "default/train/densenet__b")),
]
#: Graphs of `fitting_graph` that are compared.
SEEDS = 160


@cache
def program(seed: int) -> GraphRows:
    return compare_layout(fitting_graph(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, SEEDS), marks=EXHAUSTIVE)])
def test_programs_that_make_sense(seeds):
    for seed in seeds:
        program(seed)


@pytest.mark.slow
@given(arrays=layout_graphs(relabel=True))
@examples(30)
def test_graphs_of_unrelated_shapes(arrays):
    compare_layout(arrays)


@pytest.mark.slow
@pytest.mark.parametrize("place", FILES)
def test_files_of_the_sample(place):
    compare_layout(load(CPU / f"{place}.npz"))


def test_without_configurable_nodes_ranks_are_in_the_middle():
    arrays = layout_arrays()
    arrays["node_config_ids"] = arrays["node_config_ids"][:0]
    arrays["node_config_feat"] = arrays["node_config_feat"][:, :0]
    found = by_name(assemble(layout_of(arrays)))
    assert {n: v.tolist() for n, v in found.items()} == {n: [0.5 * n.startswith("rank__")] for n in found}


#: What no program that makes sense has, or what is too rare in them.
STILL = (
    *("*__reshape_kernel_*", "change__*_kernel_bytes__share", "*_broadcast_*", "*_slice_*"),
    *("types__*_rank*", "types__kernel_minor_from*", "neighbourhood__*_convolution_*", "neighbourhood__*_reduce_*"),
)


@EXHAUSTIVE
def test_the_programs_move_nearly_every_column():
    """Else the references would agree on zeros."""
    found = [program(seed) for seed in range(SEEDS)]
    moves = np.any([(features.config_values != 0).any(axis=0) for features in found], axis=0)
    still = [name for name, some in zip(found[0].config_columns, moves, strict=True) if not some]
    assert [name for name in still if not any(fnmatch(name, pattern) for pattern in STILL)] == []
    assert len(still) < len(moves) / 8
