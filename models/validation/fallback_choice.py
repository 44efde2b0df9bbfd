"""Which fallback suits kernels of kinds never seen, and after how many rounds, by folds that hold kinds out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.models.fallback import Fallback
from xlarank.models.validation.curves import Curves, smooth

#: Scores that differ by less are level however surely they differ, and so are taus. To put one of 64 configurations
#: first costs up to 0.06 of tau.
LEVEL: Final = {"score": 0.01, "tau": 0.02}


@dataclass(frozen=True)
class FallbackChoice:
    """A fallback and a number of rounds.

    Attributes:
        fallback: of weight 0 where the model alone does best.
        stage: index of the number of rounds.
        scores: ``{graph: {metric: value}}`` with it, out of fold.
        alone: mean score of the model alone at that stage.
    """

    fallback: Fallback
    stage: int
    scores: dict[str, dict[str, float]]
    alone: float


def choose_fallback(curves: Curves, how: str = "mean") -> FallbackChoice:
    """The heaviest fallback that folds do not show to be worse, at the number of rounds where it scores best.

    Its score must be level with the best of all at any number of rounds, and its tau with the best of these at the
    same number: behind by no more than one standard error of the paired difference over graphs (the rule by which
    Breiman et al. 1984, *Classification and Regression Trees*, choose a tree), or `LEVEL`. The heaviest, because
    folds hold out kinds that have relatives among the others, while a kernel to come may have none: where the folds
    cannot tell, the more careful order is taken. All are smoothed over rounds, as `Curves.smooth_score` is.

    ``curves`` are those of a training set with `xlarank.models.training_set.TrainingSet.fallbacks`; without any the
    best score decides alone, chosen as ``how`` says (`xlarank.models.validation.selection.SELECTIONS`).
    """
    options = [Fallback(), *curves.fallbacks()]
    if len(options) == 1:
        stage = curves.best_stage(how)
        return FallbackChoice(options[0], stage, curves.at(stage), _mean(curves, stage))
    each = [curves.of_fallback(option) for option in options]
    score = np.array([one.smooth_score(how) for one in each])  # (options, stages), as all below
    best = np.unravel_index(np.argmax(score), score.shape)
    of_score = np.array([smooth(one.column("score")) for one in each])  # (options, graphs, stages)
    level = score >= score[best] - _margin(of_score - of_score[best[0], :, best[1]][:, None], LEVEL["score"])
    of_tau = np.array([smooth(one.column("tau")) for one in each])
    tau = np.where(level, of_tau.mean(axis=1), -np.inf)
    for stage, lead in enumerate(np.argmax(tau, axis=0)):
        margin = _margin(of_tau[..., stage] - of_tau[lead, :, stage], LEVEL["tau"])
        level[:, stage] &= tau[:, stage] >= tau[lead, stage] - margin
    weight = np.where(level.any(axis=1), [option.weight for option in options], -1.0)
    heaviest = np.flatnonzero(weight == weight.max())
    allowed = np.where(level, score, -np.inf)
    chosen = int(heaviest[np.argmax(allowed[heaviest].max(axis=1))])
    stage = int(np.argmax(allowed[chosen]))
    return FallbackChoice(options[chosen], stage, each[chosen].at(stage), _mean(each[0], stage))


def _margin(difference: NDArray[np.float64], least: float) -> NDArray[np.float64]:
    """One standard error of the mean over graphs, the second axis, or ``least`` where that is more."""
    graphs = difference.shape[1]
    error = difference.std(axis=1, ddof=1) / np.sqrt(graphs) if graphs > 1 else np.zeros(1)
    found: NDArray[np.float64] = np.maximum(error, least)
    return found


def _mean(curves: Curves, stage: int) -> float:
    return float(curves.column("score")[:, stage].mean())
