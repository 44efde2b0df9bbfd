"""What the steps of the whole job cost, as measured; `xlarank.pipelines.budgeting.plan` plans with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from xlarank.data.graph import Kind


@dataclass(frozen=True)
class Costs:
    """What one kind of graphs costs: single-core seconds and bytes, in the full tier, with lambdarank.

    Attributes:
        graph_seconds: to build, per file: opening, the graph's columns, writing.
        node_seconds: to build, per node of the graph.
        config_seconds: to build, per configuration of the file, whether or not it is kept.
        choice_seconds: to build, per configuration and configurable node: unpacking and tabling one choice.
        round_seconds: to train, per row and boosting round, on one thread.
        bin_seconds: to train, per row, once: copies and LightGBM's bins.
        predict_seconds: per row and round.
        set_bytes: per row of a training set: stored rows, the stacked matrix, and its copy while stacking.
        fit_bytes: more per row, for each training that runs at the same time: its share of the rows, the chosen
            columns, LightGBM's copy, its bins.
        disk_bytes: of stored rows, per row kept; ``disk_graph`` per file.
        choice_bytes: while building, per configuration and configurable node.
        row_bytes: while building, per configuration.
    """

    graph_seconds: float
    node_seconds: float
    config_seconds: float
    choice_seconds: float
    round_seconds: float
    bin_seconds: float
    predict_seconds: float
    set_bytes: float
    fit_bytes: float
    disk_bytes: float
    disk_graph: float
    choice_bytes: float
    row_bytes: float


#: Measured on one core (x86-64 with AVX-512, LightGBM 4.7, processor time), without any safety factor.
#:
#: Training, predicting and their memory: ``python -m benchmarks.costs`` on real files. Added to what it gives: as
#: much again to ``predict_seconds``, for judging the folds, and to ``fit_bytes`` one copy of the rows, which
#: parameters that leave columns out make. Building: `docs/speed.md` (AlexNet's file for a configuration, the NLP
#: file for a node), `docs/full-size.md` (the layout files for a choice: the sum was 0.9 to 1.3 times what a tenth
#: of each of 5 collections took) and the small files of the sample for a graph. Disk and memory: these builds.
COSTS: Final[Mapping[Kind, Costs]] = {
    "layout": Costs(
        graph_seconds=0.07, node_seconds=11e-6, config_seconds=12e-6, choice_seconds=0.22e-6,
        round_seconds=4.7e-6, bin_seconds=65e-6, predict_seconds=0.4e-6,
        set_bytes=7_200, fit_bytes=16_400,
        disk_bytes=700, disk_graph=120_000, choice_bytes=4.8, row_bytes=3_500,
    ),
    "tile": Costs(
        graph_seconds=0.016, node_seconds=0.0, config_seconds=6e-6, choice_seconds=0.0,
        round_seconds=0.6e-6, bin_seconds=35e-6, predict_seconds=0.3e-6,
        set_bytes=2_900, fit_bytes=9_900,
        disk_bytes=120, disk_graph=70_000, choice_bytes=0.0, row_bytes=1_500,
    ),
}  # fmt: skip
