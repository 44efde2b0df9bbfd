"""A picture of a study: what each trial scored, and which parameters mattered."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import optuna

#: With fewer finished trials an importance would be made up.
_ENOUGH: Final = 10
#: Scores below this quantile are drawn on the floor: one hopeless trial must not press all others together.
_FLOOR: Final = 0.1
_MOST_BARS: Final = 12

_INK, _SOFT, _GRID = "#1f2d3d", "#44546a", "#dfe5ec"
_DOT, _LINE, _CHOSEN, _BAR = "#8fb3dd", "#2f6db5", "#d9822b", "#5b9a68"


@dataclass(frozen=True)
class StudyPicture:
    """What is drawn, as plain values.

    Attributes:
        title: one line above both panels.
        measure: what the score is, in words.
        scores: trial number -> score of every complete trial, higher is better; at least one.
        pruned: numbers of the trials that were stopped early.
        chosen: number of the trial whose parameters are used.
        defaults: score of the defaults, None where they were not tried.
        importance: parameter -> share of the variance between good and other trials, largest first; empty with
            too few trials.
        early: whether the importance is of the scores that trials had on their first rung: where few trials are
            complete, it is these that all trials have.
    """

    title: str
    measure: str
    scores: dict[int, float]
    pruned: list[int]
    chosen: int
    defaults: float | None
    importance: dict[str, float]
    early: bool = False

    @classmethod
    def of(
        cls, study: optuna.Study, title: str, measure: str, *, chosen: int, defaults: float | None
    ) -> StudyPicture:
        """Take the values from a study with a complete trial."""
        from optuna.trial import TrialState

        trials = study.get_trials(deepcopy=False)
        scores = {
            trial.number: float(trial.values[0])
            for trial in trials
            if trial.state == TrialState.COMPLETE and trial.values
        }
        pruned = [trial.number for trial in trials if trial.state == TrialState.PRUNED]
        early = len(scores) < _ENOUGH
        share = _importance(_on_first_rung(study) if early else study)
        return cls(title, measure, scores, pruned, chosen, defaults, share, early and bool(share))

    def svg(self) -> str:
        """The picture as a file of its own: no fonts, scripts or styles from elsewhere."""
        parts = [
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 380" '
            'font-family="Helvetica, Arial, sans-serif" font-size="12">',
            f"<title>{escape(self.title)}</title>",
            '<rect width="960" height="380" fill="#ffffff"/>',
            _text(24, 30, self.title, size=15, weight="bold"),
            *self._history(),
            *self._bars(),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    def _history(self) -> Iterator[str]:
        left, right, top, bottom = 70.0, 540.0, 74.0, 330.0
        values = np.array(list(self.scores.values()))
        shown = [value for value in (self.defaults, self.scores[self.chosen]) if value is not None]
        floor = float(min(np.quantile(values, _FLOOR), *shown))
        ceiling = float(max(values.max(), *shown))
        ticks = _ticks(floor, ceiling)
        low, high = min(ticks[0], floor), max(ticks[-1], ceiling)
        places = max(len(f"{tick:g}".partition(".")[2]) for tick in ticks)
        last = max([1, *self.scores, *self.pruned])

        def x(number: float) -> float:
            return left + (right - left) * number / last

        def y(value: float) -> float:
            return bottom - (bottom - top) * (max(value, low) - low) / (high - low)

        yield _text(left, 58, f"{self.measure}, trial by trial", weight="bold")
        for tick in ticks:
            yield _line(left, y(tick), right, y(tick), _GRID)
            yield _text(left - 8, y(tick) + 4, f"{tick:.{places}f}", anchor="end", colour=_SOFT)
        for number in _whole_ticks(last):
            yield _text(x(number), bottom + 18, str(number), anchor="middle", colour=_SOFT)
        for number in self.pruned:
            yield _line(x(number), bottom - 6, x(number), bottom, _SOFT)
        if self.defaults is not None:
            yield _line(left, y(self.defaults), right, y(self.defaults), _SOFT, dash="5 4")
        for number, value in self.scores.items():
            fill = _DOT if value >= low else "#ffffff"
            yield f'<circle cx="{x(number):.1f}" cy="{y(value):.1f}" r="3.2" fill="{fill}" stroke="{_DOT}"/>'
        yield f'<path d="{self._best_so_far(x, y, last)}" fill="none" stroke="{_LINE}" stroke-width="1.8"/>'
        chosen = self.scores[self.chosen]
        yield (
            f'<circle cx="{x(self.chosen):.1f}" cy="{y(chosen):.1f}" r="6" fill="none" stroke="{_CHOSEN}" '
            'stroke-width="2.4"/>'
        )
        below = int((values < low).sum())
        told = [f"ring: chosen, trial {self.chosen} ({chosen:.4f})", "line: best so far"]
        told += [f"dashes: defaults ({self.defaults:.4f})"] if self.defaults is not None else []
        told += [f"ticks: {len(self.pruned)} stopped early"] if self.pruned else []
        told += [f"hollow: {below} below the frame"] if below else []
        yield _text(left, bottom + 38, " · ".join(told), colour=_SOFT, size=11)

    def _best_so_far(self, x: Callable[[float], float], y: Callable[[float], float], last: int) -> str:
        best, path = -math.inf, ""
        for number, value in sorted(self.scores.items()):
            if value > best:
                path += f"H{x(number):.1f}V{y(value):.1f}" if path else f"M{x(number):.1f},{y(value):.1f}"
                best = value
        return f"{path}H{x(last):.1f}"

    def _bars(self) -> Iterator[str]:
        left, right, top = 716.0, 890.0, 82.0
        on = ", first rung" if self.early else ""
        yield _text(580, 58, f"importance of the parameters (PED-ANOVA{on})", weight="bold")
        if not self.importance:
            yield _text(580, 90, f"needs {_ENOUGH} complete trials that differ", colour=_SOFT)
            return
        bars = list(self.importance.items())[:_MOST_BARS]
        step = min(26.0, 252 / len(bars))
        widest = max(max(share for _, share in bars), 1e-9)
        for place, (name, share) in enumerate(bars):
            middle = top + step * place + step / 2
            width = (right - left) * share / widest
            yield _text(left - 8, middle + 4, name, anchor="end")
            yield (
                f'<rect x="{left}" y="{middle - step * 0.34:.1f}" width="{width:.1f}" height="{step * 0.68:.1f}" '
                f'rx="2" fill="{_BAR}"/>'
            )
            yield _text(left + width + 6, middle + 4, f"{share:.0%}", colour=_SOFT)


def _on_first_rung(study: optuna.Study) -> optuna.Study:
    """The trials with what they scored where all of them were compared first, as if that was the end."""
    import optuna
    from optuna.trial import TrialState

    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    first = min((step for trial in trials for step in trial.intermediate_values), default=0)
    early = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler())
    early.add_trials(
        optuna.trial.create_trial(
            params=t.params, distributions=t.distributions, value=t.intermediate_values[first]
        )
        for t in trials
        if first in t.intermediate_values
    )
    return early


def _importance(study: optuna.Study) -> dict[str, float]:
    """Shares by PED-ANOVA, the evaluator of Optuna that needs no other library; empty where it finds nothing."""
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import TrialState

    if sum(trial.state == TrialState.COMPLETE for trial in study.get_trials(deepcopy=False)) < _ENOUGH:
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental; and parameters that never varied
            evaluator = PedAnovaImportanceEvaluator()
            found = get_param_importances(study, evaluator=evaluator)
    except (ValueError, RuntimeError, optuna.exceptions.OptunaError):  # such as trials that are all alike
        return {}
    finite = {name: float(share) for name, share in found.items() if math.isfinite(share)}
    return finite if any(finite.values()) else {}


def _ticks(low: float, high: float) -> list[float]:
    """Four to eight round numbers that cover a range; around a single value where it has no width."""
    if high - low < 1e-9:
        low, high = low - 0.05, high + 0.05
    raw = (high - low) / 4
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = magnitude * max(factor for factor in (1, 2, 2.5, 5) if factor * magnitude <= raw)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(number * step, 10) for number in range(first, last + 1)]


def _whole_ticks(last: int) -> Sequence[int]:
    step = max(1, round(last / 5))
    return range(0, last + 1, step)


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 12,
    weight: str = "normal",
    anchor: str = "start",
    colour: str = _INK,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="{colour}">{escape(text)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, dash: str = "") -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashes}/>'
