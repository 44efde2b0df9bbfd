"""The document of columns, and the physical cause behind every column."""

from __future__ import annotations

from xlarank.features.block import Scope
from xlarank.features.catalogue import INSTANCE_BLOCKS, blocks_of
from xlarank.features.meanings import (
    CANDIDATES,
    COPIES,
    FUSION,
    INNER,
    MINOR,
    PADDING,
    PROGRAM,
    TILES,
    cause_of,
    pages,
)


def test_every_column_stands_in_the_document_with_its_meaning():
    found = pages()
    for page, blocks in {
        "layout": blocks_of("layout"),
        "tile": blocks_of("tile"),
        "instances": INSTANCE_BLOCKS,
    }.items():
        lines = set(found[page].splitlines())
        assert [
            name
            for block in blocks
            for name, text in block.columns.items()
            if f"| `{name}` | {text} |" not in lines
        ] == []


def test_every_column_has_a_cause():
    for kind in ("layout", "tile"):
        for block in blocks_of(kind):
            wrong = [name for name in block.columns if (cause_of(name) == PROGRAM) != (block.scope is Scope.GRAPH)]
            assert wrong == []
    instances = [name for block in INSTANCE_BLOCKS for name in block.columns if cause_of(name) == PROGRAM]
    assert {name.split("__")[0] for name in instances} == {"graph", "node"}
    expected = {
        "disagreement__clash_1hop_bytes__share": COPIES,
        "neighbourhood__mismatch_1hop__ratio": COPIES,
        "change__output_unlike_input__share": COPIES,
        "change__output_set__share": FUSION,
        "output__kept__row": FUSION,
        "zscore__padding_output_waste_bytes__ratio": PADDING,
        "rank__candidates_log_frequency__mean": CANDIDATES,
        "rank__bounds_output_volume__log": TILES,
        "inner__odd__log": INNER,
        "types__convolution_rank2_minor0__share": MINOR,
        "opcodes__add__count": PROGRAM,
    }
    assert {name: cause_of(name) for name in expected} == expected
