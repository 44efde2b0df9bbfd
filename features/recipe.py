"""Identity of stored rows: the settings that choose columns, the version of the code, and the source file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from xlarank.data.errors import XlarankError
from xlarank.data.graph import Kind
from xlarank.features.block import Block, Scope, Tier
from xlarank.features.catalogue import BlockFile, blocks_of, load_blocks, source_hash
from xlarank.features.program.tensors import TPU, Tiling


@dataclass(frozen=True)
class FeatureSettings:
    """Settings that determine the columns and their values.

    Attributes:
        candidates: whether to compute transductive columns, computed from the graph's candidate set.
        block_files: users' blocks, from `xlarank.features.catalogue.load_blocks`.
    """

    tier: Tier = Tier.FULL
    candidates: bool = True
    tiling: Tiling = TPU
    block_files: tuple[BlockFile, ...] = ()

    @classmethod
    def of(cls, tier: str, candidates: bool, block_files: Iterable[str | Path] = ()) -> FeatureSettings:
        """Load the users' blocks; raises `XlarankError` for an unknown tier and `BlockError` for a broken file."""
        if tier not in (tiers := [*map(str, Tier)]):
            raise XlarankError(f"`tier` is {tier!r}", expected=" or ".join(tiers))
        return cls(Tier(tier), candidates, block_files=load_blocks(*block_files))

    def blocks(self, kind: Kind) -> list[Block]:
        """Return the blocks of one kind of graph, in column order; raises `BlockError` if a file is not loaded."""
        user_blocks = [block for file in self.block_files for block in file.blocks]
        return blocks_of(kind, self.tier, candidates=self.candidates, user_blocks=user_blocks)

    def graph_columns(self, kind: Kind) -> list[str]:
        return [name for block in self.blocks(kind) if block.scope is Scope.GRAPH for name in block.columns]

    def config_columns(self, kind: Kind) -> list[str]:
        return [name for block in self.blocks(kind) if block.scope is Scope.CONFIG for name in block.columns]

    def columns(self, kind: Kind) -> list[str]:
        return self.graph_columns(kind) + self.config_columns(kind)

    def code_hash(self, kind: Kind) -> str:
        """Return a hash of everything that determines the values: code, settings and columns."""
        names = ",".join(replace(self, block_files=()).columns(kind))
        user_hashes = [file.source_hash for file in self.block_files]
        text = "|".join([source_hash(), kind, str(self.tiling), names, *user_hashes])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Recipe:
    """Everything except the source file that determines stored rows; rows of another recipe are built again.

    Attributes:
        code_hash: `FeatureSettings.code_hash` of the kind.
        max_configs: rows kept per graph, 0 for all.
        seed: seed of the sample of ``max_configs``.
    """

    code_hash: str
    settings: FeatureSettings
    max_configs: int
    seed: int

    @classmethod
    def of(cls, settings: FeatureSettings, kind: Kind, *, max_configs: int = 0, seed: int = 0) -> Recipe:
        """Return the current recipe for one kind of graph; the seed is 0 unless rows are sampled."""
        return cls(settings.code_hash(kind), settings, max_configs, seed if max_configs else 0)


@dataclass(frozen=True)
class Source:
    """Identity of the npz file that rows were made from."""

    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path) -> Source:
        stat = path.stat()
        return cls(stat.st_size, stat.st_mtime_ns)
