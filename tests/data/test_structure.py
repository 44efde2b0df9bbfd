"""Which graphs are one program at other sizes."""

from __future__ import annotations

import numpy as np
import pytest

from xlarank.data.graph import read_graph
from xlarank.data.root import SAMPLE
from xlarank.data.structure import graph_structure, structure_hash

OPCODES, EDGES = np.array([63, 63, 34, 2]), np.array([[2, 0], [2, 1], [3, 2]])


def test_the_order_of_edges_and_the_types_of_numbers_say_nothing() -> None:
    one = structure_hash(OPCODES, EDGES)
    assert structure_hash(OPCODES.astype(np.uint8), EDGES[::-1].astype(np.int32)) == one
    assert 0 <= one < 2**64


@pytest.mark.parametrize("other", [(OPCODES[::-1], EDGES), (OPCODES, EDGES[:2]), (OPCODES, EDGES[:, ::-1])])
def test_opcodes_and_edges_both_count(other: tuple[np.ndarray, np.ndarray]) -> None:
    assert structure_hash(*other) != structure_hash(OPCODES, EDGES)


def test_a_graph_without_edges_has_one() -> None:
    assert structure_hash(OPCODES, EDGES[:0]) == structure_hash(OPCODES, np.zeros((0, 2), np.int64))


def test_siblings_of_the_sample_have_one_structure() -> None:
    """Promised by the sample's README: ``__s`` is another batch size of ``__a``."""
    folder = SAMPLE / "npz" / "layout" / "tpu-estimate" / "random"
    for path in sorted(folder.glob("test/*__s.npz")):
        (sibling,) = folder.glob(f"*/{path.stem.removesuffix('__s')}__a.npz")
        one, other = (graph_structure(read_graph(p, "layout")) for p in (path, sibling))
        assert one == other
