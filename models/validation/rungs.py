"""Out-of-fold scores after few, more and all boosting rounds, so that a search can give up poor parameters early.

Fewer configurations of each graph would cost less, too, and were tried: what ranks first on an eighth or a quarter
of them says little of what does on all (docs/tuning.md).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, Final

from xlarank.models.base import Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.ranking_data import TrainingSet
from xlarank.models.validation.curves import Curves, in_turn, join_curves, judge_held
from xlarank.models.validation.folds import Fold

#: Of the trials that reach a rung one in so many climbs on.
FACTOR: Final = 4
#: Shares of the rounds on each rung, the last one apart.
_SHARES: Final = (1 / 30, 1 / 6, 1 / 2)
#: Rounds that are grown whatever the share: fewer say little.
_LEAST: Final = 10


def rungs_of(rounds: int) -> list[int]:
    """Numbers of rounds after which scores are compared, the last one all of them.

    One that costs more than half of the next is left out: with few rounds there is nothing to save, and one rung is
    left.

    >>> rungs_of(300), rungs_of(30)
    ([10, 50, 150, 300], [15, 30])
    """
    found = [rounds]
    for share in reversed(_SHARES):
        few = max(_LEAST, round(rounds * share))
        if 2 * few <= found[0]:
            found.insert(0, few)
    return found


def climb(
    rungs: Sequence[int],
    training: TrainingSet,
    folds: Sequence[Fold],
    ranker: Ranker[Any],
    settings: FitSettings,
) -> Generator[Curves, None, None]:
    """Curves of all folds on one rung after the other; ``settings.threads`` (0: all cores) folds at a time.

    Trees grow on from rung to rung, so the curves of the last one are those of `curves.validate_folds`. A caller
    that stops early saves all that would have come.
    """
    fitted = [ranker.clone() for _ in folds]
    for number, rounds in enumerate(rungs):

        def run(fold: int, each: FitSettings, number: int = number) -> Curves:
            data, one = training.without(folds[fold].held), fitted[fold]
            one = one.grow(data, each) if number else one.fit(data, each)
            return judge_held(training, folds[fold].judged, one, each.rounds)

        these = replace(settings, rounds=rounds, grows=number + 1 < len(rungs))
        yield join_curves([*in_turn(run, len(folds), these)])
