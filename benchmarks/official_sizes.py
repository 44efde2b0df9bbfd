"""Numbers of graphs, configurations and nodes of the official dataset, and the files of a share."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import md5
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.collection import SPLITS, Collection

#: Collection -> graphs by split, configurations, mean and most nodes (0: of the real files).
SIZES: Final = {
    "layout:xla:random": ((69, 7, 8), 908_561, 14_105, 43_615),
    "layout:xla:default": ((61, 7, 8), 771_496, 14_105, 43_615),
    "layout:nlp:random": ((207, 20, 17), 16_125_781, 5_659, 21_919),
    "layout:nlp:default": ((198, 20, 17), 13_285_415, 5_659, 21_919),
    "tile:xla": ((5709, 676, 844), 12_870_077, 0, 0),
}
_PROGRAMS: Final = {
    "xla": ("resnet50", "unet", "inception_v3", "mask_rcnn", "efficientnet", "ssd", "nmt"),
    "nlp": ("bert_en_uncased", "small_bert", "albert_en", "talking_heads", "electra"),
}
_MOST_CONFIGS: Final = {"layout": 100_040, "tile": 9_000}
#: Configurations of a layout file of the test split.
_TEST_CONFIGS: Final = 1000
#: Batch sizes of each program.
_BATCHES: Final = 2


@dataclass(frozen=True)
class PlannedGraph:
    """A file to write: place below ``npz``, program, factor of the batch size, and sizes."""

    path: Path
    program: int
    batch: int
    configs: int
    nodes: int


def plan(collection: Collection, share: float, seed: int = 0) -> list[PlannedGraph]:
    """Return the files of a collection.

    Sizes are quantiles of a power law with the official mean and maximum, so that the mean hardly
    depends on ``share``.
    """
    graphs, total, mean_nodes, most_nodes = SIZES[str(collection)]
    planned: list[PlannedGraph] = []
    first = 0
    for split, official in zip(SPLITS, graphs, strict=True):
        count = max(1, round(share * official))
        rng = np.random.default_rng([seed, official])
        configs = _power_law(total / sum(graphs), _MOST_CONFIGS[collection.kind], count, rng)
        if split == "test" and collection.kind == "layout":
            configs = np.full(count, _TEST_CONFIGS)
        nodes = _power_law(mean_nodes, most_nodes, -(-count // _BATCHES), rng)
        names = _PROGRAMS[collection.parts[1]]
        for number in range(count):
            program = first + number // _BATCHES
            batch = 1 << number % _BATCHES
            stem = f"{names[program % len(names)]}_l_{program}_batch_size_{16 * batch}_train"
            digest = md5(f"{collection} {stem}".encode(), usedforsecurity=False).hexdigest()
            if collection.kind == "tile":
                stem = f"{stem}_-{digest[:16]}"
            path = Path(*collection.parts, split, f"{digest if split == 'test' else stem}.npz")
            sizes = max(2, int(configs[number])), int(nodes[number // _BATCHES])
            planned.append(PlannedGraph(path, program, batch, *sizes))
        first += len(nodes)
    return planned


def _power_law(mean: float, most: float, count: int, rng: np.random.Generator) -> NDArray[Any]:
    """Return ``count`` quantiles in random order; zeros if the mean is 0."""
    quantiles = (rng.permutation(count) + 0.5) / count
    return np.asarray(most * quantiles ** (most / mean - 1)) if mean else np.zeros(count)
