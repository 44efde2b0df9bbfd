"""How certain a ranking is, by what was measured out of fold for its model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlarank.models.explanation.calibration import AMONG_FIRST, CERTAIN, NEARLY, Calibration


@dataclass(frozen=True)
class Trust:
    """How certain a ranking is, by what was measured out of fold for its model.

    Attributes:
        calibration: what was measured.
        certain: share of the pairs of distinct configurations of this graph that are called certain.
        first: so many of the best distinct configurations hold the best one with probability ``AMONG_FIRST``.
        first_nearly: the same for one that is at most `NEARLY` slower.
        ahead_of: ``(configs,)`` how many distinct configurations each one is certainly faster than.
    """

    calibration: Calibration
    certain: float
    first: int
    first_nearly: int
    ahead_of: NDArray[np.int64]

    @classmethod
    def of(cls, calibration: Calibration, each: NDArray[np.float64], group: NDArray[np.int64]) -> Trust:
        """From the scores of each seed ``(seeds, distinct)``."""
        slower = calibration.certainly_slower(each)
        distinct = each.shape[1]
        return cls(
            calibration=calibration,
            certain=float(slower.sum()) / max(1, distinct * (distinct - 1) // 2),
            first=calibration.first_of(distinct),
            first_nearly=calibration.first_nearly_of(distinct),
            ahead_of=slower[group],
        )

    def lines(self) -> list[str]:
        """The same in words."""
        found = self.calibration
        if np.isfinite(found.threshold):
            certain = (
                f"{self.certain:.0%} of the pairs are certain; of such pairs {found.right:.1%} were in the right "
                f"order on families never seen ({found.right_low:.1%} to {found.right_high:.1%}, "
                f"{found.graphs} graphs)"
            )
        else:
            certain = f"no pair is certain: out of fold none reached {CERTAIN:.0%} ({found.graphs} graphs)"
        first = f"the best is among the first {self.first} with {AMONG_FIRST:.0%} probability"
        nearly = f"one at most {NEARLY:.0%} slower among the first {self.first_nearly}"
        return [certain, f"{first}, {nearly}"]

    def as_json(self) -> dict[str, Any]:
        found = self.calibration
        return {
            "certain_share": self.certain,
            "certain_right": found.right if np.isfinite(found.right) else None,
            "certain_right_interval": [found.right_low, found.right_high] if np.isfinite(found.right) else None,
            "best_among_first": self.first,
            "nearly_best_among_first": self.first_nearly,
            "probability": AMONG_FIRST,
            "calibrated_on": {"graphs": found.graphs, "families": found.families, "seeds": found.seeds},
        }
