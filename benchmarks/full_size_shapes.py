"""Sizes of the graphs of a tree as large as the official TpuGraphs collections.

Graphs per split and configurations per collection are the official numbers and hold exactly. How the configurations
spread over the graphs is not published per graph, so it is drawn: around what the real files and the official
validation indices show (NLP validation graphs reach from 11,000 to 100,000 configurations, XLA ones from 481 to
19,000), within the official bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

#: Graphs of train, valid and test, then configurations.
OFFICIAL: Final[dict[str, tuple[tuple[int, int, int], int]]] = {
    "layout:xla:random": ((69, 7, 8), 900_000),
    "layout:xla:default": ((61, 7, 8), 800_000),
    "layout:nlp:random": ((207, 20, 17), 16_100_000),
    "layout:nlp:default": ((198, 20, 17), 13_300_000),
    "tile:xla": ((5709, 676, 844), 12_900_000),
}
#: The most configurations of one graph, and of a test graph of the competition (layouts).
MOST: Final = 100_040
TEST_CONFIGS: Final = 1000
#: Configurable nodes of the smallest and the largest layout graph.
CONFIGURABLE: Final = (20, 3143)
#: ``node_config_feat`` has 18 float32 a cell (configuration x configurable node); the largest takes 2.6 GB.
CELL_BYTES: Final = 72
MOST_CELLS: Final = 2_600_000_000 // CELL_BYTES
#: How often programs of a family come, roughly as the names of the real files have it.
FAMILIES: Final[dict[str, dict[str, int]]] = {
    "xla": dict.fromkeys(
        "alexnet bert brax densenet efficientnet inception magenta maskrcnn mnasnet mobilenet nmt openai resnet "
        "retinanet shapemask ssd transformer unet wavenet xception".split(),
        1,
    ),
    "nlp": {"bert": 17, "albert": 2, "talking_heads": 1},
}
SPLITS: Final = ("train", "valid", "test")


@dataclass(frozen=True)
class Shape:
    """One graph to make: where it lies and how large it is (``configurable`` is 0 for tiles)."""

    split: str
    name: str
    configs: int
    configurable: int

    @property
    def cells(self) -> int:
        """What reading it costs: configurations x configurable nodes, or configurations of a tile."""
        return self.configs * max(1, self.configurable)


def draw_shapes(collection: str, seed: int = 0) -> list[Shape]:
    """Every graph of a collection; the splits and the sum of configurations are the official ones.

    Test graphs of layouts hold 1000 configurations, as in the competition, so the other splits hold all the rest
    of the official sum; those of tiles are like any other.
    """
    splits, total = OFFICIAL[collection]
    kind, source = collection.split(":")[:2]
    rng = np.random.default_rng([seed, sorted(OFFICIAL).index(collection)])
    count = sum(splits)
    test = splits[2] if kind == "layout" else 0
    if kind == "tile":
        raw, low, high = rng.lognormal(0.0, 1.5, count), 2, 10_000
    elif source == "nlp":
        capped = rng.random(count - test) < 0.4  # this share of the real graphs was measured up to the cap
        raw, low, high = np.where(capped, 10.0, rng.uniform(1.0, 9.0, count - test)), 10_000, MOST
    else:
        raw, low, high = rng.lognormal(0.0, 1.2, count - test), 20, MOST
    configs = np.concatenate(
        [scale_to(raw, total - test * TEST_CONFIGS, low, high), np.full(test, TEST_CONFIGS, np.int64)]
    )
    nodes = np.zeros(count, np.int64)
    if kind == "layout":
        low, high = (50, 850) if source == "nlp" else CONFIGURABLE
        nodes = np.exp(rng.uniform(np.log(low), np.log(high + 1), count)).astype(np.int64)
        nodes = np.minimum(nodes, MOST_CELLS // configs)
    families = rng.choice(
        list(FAMILIES[source]), count, p=np.array([*FAMILIES[source].values()]) / sum(FAMILIES[source].values())
    )
    labels = np.repeat(SPLITS, splits)
    return [
        Shape(
            str(labels[i]),
            f"{i:032x}" if labels[i] == "test" else f"{families[i]}__{i}",
            int(configs[i]),
            int(nodes[i]),
        )
        for i in range(count)
    ]


def scale_to(raw: NDArray[np.float64], total: int, low: int, high: int) -> NDArray[np.int64]:
    """Whole numbers in proportion to ``raw``, each from ``low`` to ``high``, that add up to ``total``.

    Raises `ValueError` where no such numbers exist.

    >>> scale_to(np.array([1.0, 2.0, 100.0]), 50, 4, 30).tolist()
    [7, 13, 30]
    """
    if not low * len(raw) <= total <= high * len(raw):
        raise ValueError(f"{len(raw)} numbers from {low} to {high} cannot add up to {total}")
    small, large = 0.0, high / float(raw.min())
    for _ in range(200):
        middle = (small + large) / 2
        if np.clip(middle * raw, low, high).sum() < total:
            small = middle
        else:
            large = middle
    exact = np.clip(large * raw, low, high)
    whole = np.floor(exact).astype(np.int64)
    order = np.argsort(whole - exact, kind="stable")  # the largest remainders first
    while (missing := total - int(whole.sum())) > 0:
        room = order[whole[order] < high][:missing]
        whole[room] += 1
    return whole


def pick_share(shapes: Sequence[Shape], share: float) -> list[Shape]:
    """A share of each split, at least one graph: the largest, then at even steps of size downwards.

    >>> [shape.configs for shape in pick_share([Shape("train", str(n), n, 0) for n in range(1, 11)], 0.2)]
    [5, 10]
    """
    picked = []
    for split in SPLITS:
        ranked = sorted((s for s in shapes if s.split == split), key=lambda s: (-s.cells, s.name))
        if ranked:
            count = max(1, round(share * len(ranked)))
            picked += [ranked[i * len(ranked) // count] for i in range(count)]
    chosen = set(picked)
    return [shape for shape in shapes if shape in chosen]
