"""Simple counts that rank without learning: models without members that sum columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xlarank.data.graph import Kind
from xlarank.models.column_sum import ColumnSum
from xlarank.models.model import RULE, Model
from xlarank.models.validation.metrics import LAYOUTS_SET

_OUTPUT_VOLUME: Final = "bounds__output_volume__log"
_KERNEL_VOLUME: Final = "bounds__kernel_volume__log"
#: Rules by kind of graphs: single columns that rank layouts best in measured or estimated
#: collections, smaller is faster; volumes of tiles, larger is faster.
_RULES: Final[dict[Kind, dict[str, ColumnSum]]] = {
    "layout": {
        "fewest layouts set": ColumnSum((LAYOUTS_SET,)),
        "padded bytes of set outputs": ColumnSum(("outputs__all_padded__ratio",)),
        "bytes of changed layouts": ColumnSum(("change__all_bytes__ratio",)),
        "bytes of disagreeing layouts": ColumnSum(("disagreement__mismatch_1hop_bytes__share",)),
    },
    "tile": {
        "largest output tile": ColumnSum((_OUTPUT_VOLUME,), -1.0),
        "largest tile": ColumnSum((_OUTPUT_VOLUME, _KERNEL_VOLUME), -1.0),
    },
}


def rules_of(kind: Kind, columns: Sequence[str]) -> list[Model]:
    """Return the rules whose columns the rows have."""
    models = []
    for name, rule in _RULES[kind].items():
        if {*rule.columns} <= {*columns}:
            models.append(Model(f"{RULE}{name}", kind, columns=[*columns], rule=rule))
    return models
