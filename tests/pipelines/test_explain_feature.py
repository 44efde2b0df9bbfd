"""What a column means, looked up by name or pattern."""

from __future__ import annotations

import pytest

from xlarank.data.errors import XlarankError
from xlarank.features.catalogue import blocks_of, every_block
from xlarank.pipelines.explain_feature import explain_feature


def test_one_column():
    (found,) = explain_feature("padding__output_waste__max")
    assert found.meaning == "largest waste, output tensors of configurable nodes"
    assert (found.kinds, found.block, found.scope, found.tier) == (("layout",), "Padding", "configuration", "fast")
    assert "128 x 8" in found.about and not found.transductive


def test_a_column_of_both_kinds_is_named_once():
    (found,) = explain_feature("size__nodes__log")
    assert found.kinds == ("layout", "tile") and found.scope == "graph"


def test_a_transductive_column_says_so():
    assert explain_feature("candidates__minority__share")[0].transductive


def test_a_column_of_instances_is_known():
    (found,) = explain_feature("pair__unlike__flag")
    assert (found.block, found.scope, found.kinds) == ("InstancePair", "instance", ("layout",))
    assert found.meaning == "whether the two full layouts differ"
    assert explain_feature("candidates__rarity__log2")[0].transductive


def test_a_pattern_finds_all_in_column_order():
    names = [found.name for found in explain_feature("propagation__*")]
    block = next(block for block in blocks_of("layout") if type(block).__name__ == "Propagation")
    assert names == list(block.columns)


def test_every_column_is_found():
    declared = {name for kind in ("layout", "tile") for block in every_block(kind) for name in block.columns}
    assert {found.name for found in explain_feature("*")} == declared


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(XlarankError, match=r"outptu_waste__max' is not a column.*padding__output_waste__max"):
        explain_feature("padding__outptu_waste__max")


def test_nonsense_suggests_nothing():
    with pytest.raises(XlarankError, match=r"expected one of [0-9]+ columns;"):
        explain_feature("qqqqqq")
