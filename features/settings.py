"""Settings that determine the columns and their values."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Final

from xlarank.data.collection import Collection
from xlarank.data.errors import XlarankError
from xlarank.data.graph import Kind
from xlarank.features.block import Block, Scope, Tier
from xlarank.features.catalogue import blocks_of, columns_in
from xlarank.features.layout.hardware import HARDWARE, copy_hardware
from xlarank.features.program import tensors

#: Version of the values of columns. Raise it when values of any column change: rows of an earlier
#: version are built again, and models trained on them are refused.
COLUMNS_VERSION: Final = 1


@dataclass(frozen=True)
class FeatureSettings:
    """Settings that determine the columns and their values.

    Attributes:
        candidates: whether to compute listwise columns.
        hardware: hardware whose copies are priced, of `HARDWARE`; None leaves their columns 0,
            at no cost. Not part of `columns_version`: the columns mean the same for all hardware,
            so such rows can be joined.
    """

    tier: Tier = Tier.FULL
    candidates: bool = True
    tiling: tensors.Tiling = tensors.TPU
    hardware: str | None = None

    def __post_init__(self) -> None:
        if self.hardware is not None and self.hardware not in HARDWARE:
            got = f"{self.hardware!r} is no known hardware"
            raise XlarankError(got, expected=" or ".join(HARDWARE))

    def for_collection(self, collection: Collection) -> FeatureSettings:
        """Return the settings with the hardware that explains a collection's labels, unless set."""
        if self.hardware is not None or collection.kind != "layout":
            return self
        return replace(self, hardware=copy_hardware(collection.hardware))

    def blocks(self, kind: Kind) -> list[Block]:
        """Return the blocks in column order."""
        return blocks_of(kind, self.tier, candidates=self.candidates)

    def graph_columns(self, kind: Kind) -> list[str]:
        return columns_in(self.blocks(kind), Scope.GRAPH)

    def config_columns(self, kind: Kind) -> list[str]:
        return columns_in(self.blocks(kind), Scope.CONFIG)

    def columns(self, kind: Kind) -> list[str]:
        return self.graph_columns(kind) + self.config_columns(kind)

    def columns_version(self, kind: Kind) -> str:
        """Return `COLUMNS_VERSION` and a checksum of the settings and of the names of columns."""
        names = ",".join(self.columns(kind))
        checksum = zlib.crc32(f"{self.tiling}|{names}".encode())
        return f"{COLUMNS_VERSION}-{checksum:08x}"
