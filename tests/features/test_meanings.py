"""The document of columns, the physical cause behind every column, and the hardware that it speaks of."""

from __future__ import annotations

from xlarank.data.collection import Collection
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
)  # fmt: skip
from xlarank.features.targets import CPU, TARGETS, TPU, foreign_columns, target_of

BLOCKS = {"layout": blocks_of("layout"), "tile": blocks_of("tile"), "instances": INSTANCE_BLOCKS}


def test_every_column_stands_in_the_document_with_its_meaning():
    for page, text in pages().items():
        columns = [column for block in BLOCKS[page] for column in block.columns.items()]
        assert {f"| `{name}` | {meaning} |" for name, meaning in columns} <= set(text.splitlines())


def test_every_column_has_a_cause():
    for kind in ("layout", "tile"):
        for block in BLOCKS[kind]:
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
        "packed__output_waste__mean": PADDING,
        "rank__candidates_log_frequency__mean": CANDIDATES,
        "rank__bounds_output_volume__log": TILES,
        "inner__odd__log": INNER,
        "types__convolution_rank2_minor0__share": MINOR,
        "opcodes__add__count": PROGRAM,
    }
    assert {name: cause_of(name) for name in expected} == expected


def test_the_source_says_the_target_and_no_two_own_a_column():
    for target, collections in (
        (CPU, "tile:cpu tile:cpu-zen4 layout:cpu:random"),
        (TPU, "tile:xla tile:cpus tile:mine layout:tpu-estimate:default layout:nlp:random"),
    ):
        assert {target_of(Collection.parse(text)) for text in collections.split()} == {target}
    tiles, layouts = ({name for block in BLOCKS[kind] for name in block.columns} for kind in ("tile", "layout"))
    owned = [name for target in TARGETS.values() for name in target.columns]
    assert set(owned) <= tiles - layouts and len(owned) == len(set(owned))
    for name, target in TARGETS.items():
        assert target.name == name and target.estimate in ("", *target.columns)
    assert foreign_columns(CPU) == TPU.columns and foreign_columns(TPU) == CPU.columns
    assert "inner__cycles__log" in foreign_columns(TPU) and "traffic__vmem__ratio" in foreign_columns(CPU)
    assert foreign_columns(None) == frozenset()
