"""The picture of a study: whole, self-contained, and true to the numbers."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlarank.pipelines.study.plot import StudyPicture, _ticks

SPACE = "{http://www.w3.org/2000/svg}"
PICTURE = StudyPicture(
    title="tile:cpu: lambdarank",
    measure="1 - slowdown@5",
    scores={0: 0.5, 1: 0.25, 3: 0.75, 4: 0.5},
    pruned=[2],
    chosen=3,
    defaults=0.5,
    importance={"learning_rate": 0.75, "num_leaves": 0.25},
)


def study(trials: int) -> optuna.Study:
    """Scores hang on x alone; the third trial is pruned, the fourth fails."""
    found = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))

    def objective(trial: optuna.Trial) -> float:
        x, _ = trial.suggest_float("x", 0, 1), trial.suggest_float("noise", 0, 1)
        if trial.number == 2:
            raise optuna.TrialPruned
        if trial.number == 3:
            raise MemoryError
        return x

    found.optimize(objective, n_trials=trials, catch=(MemoryError,))
    return found


def drawn(picture: StudyPicture) -> tuple[ET.Element, list[str]]:
    root = ET.fromstring(picture.svg())
    return root, [element.text or "" for element in root.iter(f"{SPACE}text")]


def test_the_values_come_from_the_study() -> None:
    of = study(40)
    picture = StudyPicture.of(of, "title", "measure", chosen=5, defaults=0.25)
    assert len(picture.scores) == 38
    assert picture.scores[5] == of.trials[5].value
    assert picture.pruned == [2]
    assert next(iter(picture.importance)) == "x"
    assert picture.importance["x"] > 0.8
    assert sum(picture.importance.values()) == pytest.approx(1)


def test_few_trials_have_no_importance() -> None:
    picture = StudyPicture.of(study(8), "title", "measure", chosen=0, defaults=None)
    assert picture.importance == {}
    assert "needs 10 complete trials that differ" in drawn(picture)[1]


def test_where_few_trials_are_complete_the_first_rung_tells_what_mattered() -> None:
    """Two of forty trials climb on; the noise of the second rung must not count."""
    halved = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))

    def objective(trial: optuna.Trial) -> float:
        x, noise = trial.suggest_float("x", 0, 1), trial.suggest_float("noise", 0, 1)
        trial.report(x, 1)
        if trial.number > 1:
            raise optuna.TrialPruned
        trial.report(noise, 4)
        return noise

    halved.optimize(objective, n_trials=40)
    picture = StudyPicture.of(halved, "title", "measure", chosen=0, defaults=None)
    assert len(picture.scores) == 2
    assert picture.early
    assert picture.importance["x"] > 0.8
    assert "importance of the parameters (PED-ANOVA, first rung)" in drawn(picture)[1]
    assert len(halved.trials) == 40, "the study itself is left alone"


def test_trials_that_score_alike_have_no_importance() -> None:
    alike = optuna.create_study(direction="maximize")
    alike.optimize(lambda trial: 0.0 * trial.suggest_float("x", 0, 1), n_trials=12)
    picture = StudyPicture.of(alike, "title", "measure", chosen=0, defaults=0.0)
    assert not any(math.isnan(share) for share in picture.importance.values())
    drawn(picture)


def test_every_complete_trial_is_a_dot_and_the_chosen_one_ringed() -> None:
    root, texts = drawn(PICTURE)
    circles = list(root.iter(f"{SPACE}circle"))
    assert len(circles) == 4 + 1
    dot, ring = circles[2], circles[-1]
    assert (dot.get("cx"), dot.get("cy")) == (ring.get("cx"), ring.get("cy"))
    assert texts[-5:-4] == ["importance of the parameters (PED-ANOVA)"]
    assert texts[-4:] == ["learning_rate", "75%", "num_leaves", "25%"]
    legend = next(text for text in texts if text.startswith("ring"))
    assert "chosen, trial 3 (0.7500)" in legend
    assert "defaults (0.5000)" in legend
    assert "1 stopped early" in legend
    heights = {float(circle.get("cy") or "nan") for circle in circles[:4]}
    assert min(heights) == float(dot.get("cy") or "nan"), "the best is the highest"


def test_one_hopeless_trial_does_not_press_the_others_together() -> None:
    scores = {number: 0.8 + number / 1000 for number in range(30)} | {30: -5.0}
    root, texts = drawn(replace(PICTURE, scores=scores, chosen=29, defaults=0.8))
    heights = [float(circle.get("cy") or "nan") for circle in root.iter(f"{SPACE}circle")]
    assert max(heights[:30]) - min(heights[:30]) > 150
    assert any("1 below the frame" in text for text in texts)


def test_it_needs_nothing_from_elsewhere_and_no_name_breaks_it() -> None:
    text = replace(PICTURE, title='a<b>&"c', importance={"<script>": 1.0}).svg()
    assert "<script" not in text
    assert "href" not in text
    ET.fromstring(text)


@given(
    st.lists(st.floats(-3, 1), min_size=1, max_size=30),
    st.lists(st.integers(31, 60), max_size=5),
    st.none() | st.floats(-3, 1),
)
def test_any_study_can_be_drawn(scores: list[float], pruned: list[int], defaults: float | None) -> None:
    picture = replace(PICTURE, scores=dict(enumerate(scores)), pruned=pruned, chosen=0, defaults=defaults)
    root, _ = drawn(picture)
    for element in root.iter():
        for name in ("cx", "cy", "x", "y", "x1", "y1", "x2", "y2"):
            if (place := element.get(name)) is not None:
                assert 0 <= float(place) <= 960


@given(st.floats(-10, 10), st.floats(0, 5))
def test_ticks_cover_the_range_and_are_few(low: float, width: float) -> None:
    ticks = _ticks(low, low + width)
    assert ticks[0] <= low + 1e-9
    assert ticks[-1] >= low + width - 1e-9
    assert 2 <= len(ticks) <= 12
