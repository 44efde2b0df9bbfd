"""What a column means, looked up by name or pattern."""

from __future__ import annotations

import pytest

from xlarank.data.errors import XlarankError
from xlarank.features.catalogue import every_block
from xlarank.pipelines.describe_columns import describe_columns


def test_columns_are_found_by_name_or_pattern() -> None:
    (column,) = describe_columns("padding__output_waste__max")
    assert column.meaning == "largest waste, output tensors of configurable nodes"
    expected = ("layout",), "Padding", "configuration", "fast"
    assert (column.kinds, column.block, column.scope, column.tier) == expected
    assert "128 x 8" in column.about and not column.transductive
    (column,) = describe_columns("size__nodes__log")
    assert (column.kinds, column.scope) == (("layout", "tile"), "graph"), "a column of both kinds is named once"
    assert describe_columns("candidates__minority__share")[0].transductive
    (column,) = describe_columns("pair__unlike__flag")
    assert (column.block, column.scope, column.kinds) == ("InstancePair", "instance", ("layout",))
    declared = {
        name: type(one).__name__ for kind in ("layout", "tile") for one in every_block(kind) for name in one.columns
    }
    assert {column.name for column in describe_columns("*")} == declared.keys()
    names = [column.name for column in describe_columns("propagation__*")]
    assert names == [name for name, block in declared.items() if block == "Propagation"], "in column order"


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(XlarankError, match=r"outptu_waste__max' is not a column.*padding__output_waste__max"):
        describe_columns("padding__outptu_waste__max")
    with pytest.raises(XlarankError, match=r"expected one of [0-9]+ columns;"):
        describe_columns("qqqqqq")
