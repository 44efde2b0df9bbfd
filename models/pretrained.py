"""The shipped rankers, for layouts and tiles of TPUs where the workspace has no model of its own.

They were trained on estimates of the XLA:TPU compiler alone (TPU v3), not on any measurement; ``shipped/README.md``
is their card. ``python -m benchmarks.pretrain --kind layout|tile`` makes them again.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from xlarank.data.graph import Kind
from xlarank.features.rows import GraphRows
from xlarank.models.base import places_by_name
from xlarank.models.trained import TrainedModel, load_model

FOLDER: Final = Path(__file__).parent / "shipped"
FOLDERS: Final[dict[Kind, Path]] = {"layout": FOLDER, "tile": FOLDER / "tile"}
#: It stands for both searches of the estimated layouts.
COLLECTION: Final = "layout:tpu-estimate:all"


@cache
def pretrained_model(kind: Kind = "layout") -> TrainedModel:
    """The shipped model of a kind of graphs; raises `ModelError` where the installation lacks it."""
    return replace(load_model(FOLDERS[kind]), shipped=True)


def columns_by_name(rows: GraphRows, wanted: list[str]) -> GraphRows:
    """Rows with these columns alone: a shipped model needs no other rows than today's; raises `ModelError`."""
    do = "run build-features with --tier full, or make the model again: python -m benchmarks.pretrain"
    return rows.only(places_by_name(wanted, rows.columns, "the model", do))
