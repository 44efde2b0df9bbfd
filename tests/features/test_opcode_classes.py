"""Opcodes by class."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.oracle_program import CLASS_OF, CLASSES
from xlarank.data.schema import OPCODE, OPCODES
from xlarank.features.program.opcode_classes import OPCODE_CLASSES, opcode_class


def class_of(opcode: str) -> str:
    return OPCODE_CLASSES[int(opcode_class(np.array([OPCODE[opcode]]))[0])]


def test_the_order_of_the_classes_is_that_of_the_columns():
    assert OPCODE_CLASSES == CLASSES


def test_classes_of_opcodes():
    """The slow reference has its own list of the common ones."""
    assert {opcode: class_of(opcode) for opcode in CLASS_OF} == CLASS_OF


@pytest.mark.parametrize(
    "opcode", ["unknown", "all-gather", "send", "recv-done", "infeed", "trace", "partition-id"]
)
def test_what_no_class_names_is_other(opcode):
    assert class_of(opcode) == "other"


def test_every_opcode_has_a_class_and_keeps_its_place():
    classes = opcode_class(np.arange(len(OPCODES)))
    assert classes.min() == 0 and classes.max() == len(OPCODE_CLASSES) - 1
    assert set(classes.tolist()) == set(range(len(OPCODE_CLASSES)))
    assert opcode_class(np.arange(len(OPCODES))[::-1]).tolist() == classes[::-1].tolist()
