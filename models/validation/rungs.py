"""Out-of-fold scores from little work to all of it: rungs that parameters climb while they do well.

A fit costs its rows times its rounds. The lower rungs learn from some configurations of each graph (of very many
graphs: from some of the graphs) and grow fewer trees; the last one is all that `curves.validate_folds` does.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from xlarank.features.rows import GraphRows
from xlarank.features.sampling import draw_of_graph, sample_configs
from xlarank.models.base import Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.rankers.binned import BinnedRows
from xlarank.models.ranking_data import RankingData
from xlarank.models.training_set import TrainingSet
from xlarank.models.validation.curves import STEP, Curves, in_turn, join_curves, judge_held
from xlarank.models.validation.fold_plan import FoldPlan
from xlarank.models.validation.folds import Fold

#: Of the parameters that reach a rung one in so many climbs on.
FACTOR: Final = 4
#: Shares of the rows and of the rounds on each rung, the last one apart.
_SHARES: Final = ((1 / 8, 1 / 6), (1.0, 1 / 12), (1.0, 1 / 3))
#: Configurations of a graph that are kept whatever the share: fewer say little of what orders them.
_LEAST_CONFIGS: Final = 64
#: Choices of columns and orders of a small share whose bins stay in memory: all that a study makes.
_CHOICES: Final = 16
#: Graphs that are kept whatever the share; with fewer, each lost one is missed.
_LEAST_GRAPHS: Final = 500


@dataclass(frozen=True, eq=False)
class Rung:
    """How much is done before parameters are compared.

    Attributes:
        learned: graphs with those of their configurations that are learned from.
        judged: the same graphs, whole.
        folds: groups of both that are held out together, and those of them that are judged.
        rounds: trees grown by then.
        resource: 1 for the first rung, `FACTOR` times as much for each one above.
        bins: of what is learned from, shared by all trials.
    """

    learned: TrainingSet
    judged: TrainingSet
    folds: list[Fold]
    rounds: int
    resource: int = 1
    bins: BinnedRows | None = None

    @property
    def cost(self) -> int:
        """Rows times rounds."""
        return sum(map(len, self.learned.whole().parts)) * self.rounds


def rungs_of(training: TrainingSet, folds: FoldPlan, rounds: int, bins: BinnedRows | None = None) -> list[Rung]:
    """The rungs of a training set, the cheapest first; the last is all of it.

    Rungs that cost more than half of the next one are left out: with few configurations and rounds there is nothing
    to save, and one rung is left. ``bins`` are those of the whole training set.
    """
    last = Rung(training, training, folds.folds, rounds, bins=bins)
    sets = {1.0: last}
    below = []
    for share, part in _SHARES:
        if share not in sets:
            sets[share] = _thinned(last, share)
        below.append(replace(sets[share], rounds=min(rounds, max(STEP, round(rounds * part / STEP) * STEP))))
    rungs = [last]
    for rung in reversed(below):
        if 2 * rung.cost <= rungs[0].cost:
            rungs.insert(0, rung)
    return [replace(rung, resource=FACTOR**number) for number, rung in enumerate(rungs)]


def climb(rungs: Sequence[Rung], ranker: Ranker[Any], settings: FitSettings) -> Generator[Curves, None, None]:
    """Curves of all folds on one rung after the other; ``settings.threads`` (0: all cores) folds at a time.

    From a rung to one of the same rows the trees grow on; on other rows they are learned anew, so that the curves
    of the last rung are those of `validate_folds`. A caller that stops early saves all that would have come.
    """
    fitted = [ranker.clone() for _ in rungs[0].folds]
    for number, rung in enumerate(rungs):
        goes_on = number + 1 < len(rungs) and rungs[number + 1].learned is rung.learned
        grown = number > 0 and rungs[number - 1].learned is rung.learned

        def run(fold: int, each: FitSettings, rung: Rung = rung, grown: bool = grown) -> Curves:
            this, one = rung.folds[fold], fitted[fold]
            data = rung.learned.without(this.held)
            one = one.grow(data, each) if grown else one.fit(data, each)
            return judge_held(rung.judged, this.judged, one, rung.rounds)

        these = replace(settings, rounds=rung.rounds, bins=rung.bins, grows=goes_on)
        yield join_curves([*in_turn(run, len(rung.folds), these)])


def _thinned(last: Rung, share: float) -> Rung:
    """A share of the rows: of many graphs some, of the graphs that are left some configurations."""
    training = last.judged
    kept = max(share, min(1.0, _LEAST_GRAPHS / training.data.groups))
    judged_once = {group for fold in last.folds for group in fold.judged}
    never = [group for group in range(training.data.groups) if group not in judged_once]
    graphs = sorted(
        {group for groups in [never, *(fold.judged for fold in last.folds)] for group in _some(groups, kept)}
    )
    place = {group: number for number, group in enumerate(graphs)}
    # A kernel whose kind is open is held out by several folds: by each of them, wherever it was chosen.
    folds = [
        Fold(
            judged=[place[group] for group in fold.judged if group in place],
            held=[place[group] for group in fold.held if group in place],
        )
        for fold in last.folds
    ]
    judged = training if kept == 1.0 else replace(training, data=training.data.take(graphs))
    rest = share / kept
    learned = replace(
        judged,
        data=_some_configs(judged.data, rest),
        also=None if judged.also is None else _some_configs(judged.also, rest),
    )
    bins = None if last.bins is None else BinnedRows(learned.whole(), threads=1, kept=_CHOICES)
    return Rung(learned, judged, last.folds if kept == 1.0 else folds, last.rounds, bins=bins)


def _some(groups: Sequence[int], share: float) -> list[int]:
    """A share of them, at least one if there are any, at even steps."""
    some = max(min(1, len(groups)), round(share * len(groups)))
    return [groups[number * len(groups) // some] for number in range(some)]


def _some_configs(data: RankingData, share: float) -> RankingData:
    """The graphs with a share of their distinct configurations, at even steps from the fastest to the slowest."""
    return data if share == 1.0 else RankingData.from_graphs([_thin(graph, share) for graph in data.parts])


def _thin(graph: GraphRows, share: float) -> GraphRows:
    most = max(_LEAST_CONFIGS, round(share * len(graph)))
    if most >= len(graph):
        return graph
    thin = graph.take(sample_configs(graph.row_cost, most, draw_of_graph(0, graph.name), "uniform"))
    return thin if thin.rankable else graph
