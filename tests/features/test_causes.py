"""Every column of single configurations has a cause."""

from __future__ import annotations

import pytest

from xlarank.features.block import Scope
from xlarank.features.catalogue import INSTANCE_BLOCKS, blocks_of
from xlarank.features.meanings import CANDIDATES, COPIES, FUSION, INNER, MINOR, PADDING, PROGRAM, TILES, cause_of


@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_every_column_of_configurations_has_a_cause_of_its_own(kind: str) -> None:
    for block in blocks_of(kind):  # type: ignore[arg-type]
        for name in block.columns:
            assert (cause_of(name) == PROGRAM) == (block.scope is Scope.GRAPH), name


def test_every_column_of_instances_has_a_cause() -> None:
    for name in (name for block in INSTANCE_BLOCKS for name in block.columns):
        assert cause_of(name) != PROGRAM or name.startswith(("graph__", "node__")), name


@pytest.mark.parametrize(
    ("column", "cause"),
    [
        ("disagreement__clash_1hop_bytes__share", COPIES),
        ("neighbourhood__mismatch_1hop__ratio", COPIES),
        ("change__output_unlike_input__share", COPIES),
        ("change__output_set__share", FUSION),
        ("output__kept__row", FUSION),
        ("zscore__padding_output_waste_bytes__ratio", PADDING),
        ("rank__candidates_log_frequency__mean", CANDIDATES),
        ("rank__bounds_output_volume__log", TILES),
        ("inner__odd__log", INNER),
        ("types__convolution_rank2_minor0__share", MINOR),
        ("opcodes__add__count", PROGRAM),
    ],
)
def test_what_columns_speak_of(column: str, cause: str) -> None:
    assert cause_of(column) == cause
