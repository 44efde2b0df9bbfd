"""The hardware behind a collection, and the columns that speak of it alone."""

from __future__ import annotations

import pytest

from xlarank.data.collection import Collection
from xlarank.features.catalogue import blocks_of
from xlarank.features.targets import CPU, TARGETS, TPU, foreign_columns, target_of


@pytest.mark.parametrize(
    ("collection", "target"),
    [
        ("tile:cpu", CPU),
        ("tile:cpu-zen4", CPU),
        ("tile:xla", TPU),
        ("tile:cpus", TPU),
        ("tile:mine", TPU),
        ("layout:cpu:random", CPU),
        ("layout:tpu-estimate:default", TPU),
        ("layout:nlp:random", TPU),
    ],
)
def test_the_source_says_the_target(collection, target):
    assert target_of(Collection.parse(collection)) is target


def test_a_target_owns_columns_of_tiles_and_no_two_own_one():
    tiles = {name for block in blocks_of("tile") for name in block.columns}
    layouts = {name for block in blocks_of("layout") for name in block.columns}
    owned = [name for target in TARGETS.values() for name in target.columns]
    assert set(owned) <= tiles and layouts.isdisjoint(owned)
    assert len(owned) == len(set(owned))
    for name, target in TARGETS.items():
        assert target.name == name
        assert not target.estimate or target.estimate in target.columns


def test_foreign_is_what_other_targets_own():
    assert foreign_columns(CPU) == TPU.columns and foreign_columns(TPU) == CPU.columns
    assert "inner__cycles__log" in foreign_columns(TPU) and "traffic__vmem__ratio" in foreign_columns(CPU)
    assert foreign_columns(None) == frozenset()
