"""Search for good parameters, by folds of program families, or of kinds of kernels for tiles."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optuna.study import MaxTrialsCallback
from optuna.trial import FrozenTrial, TrialState

from xlarank.data.errors import CollectionError, XlarankError
from xlarank.data.files import atomic_write
from xlarank.data.ranges import require_ranges, require_seconds
from xlarank.data.workspace import Workspace
from xlarank.models.registry import DEFAULT, ranker_class
from xlarank.models.training_data import FitSettings
from xlarank.models.validation.best_params import BestParams, tuned_members
from xlarank.models.validation.curves import FoldPlan
from xlarank.models.validation.metrics import paired_difference
from xlarank.pipelines.support.evaluation import score_name
from xlarank.pipelines.support.progress import Progress, Silent, steps_of
from xlarank.pipelines.support.studies import (
    FINISHED,
    RESULT,
    Objective,
    StudyOptions,
    open_storage,
    open_study,
)
from xlarank.pipelines.support.training_sets import read_training_set
from xlarank.pipelines.support.workspace_collections import chosen_collections
from xlarank.pipelines.support.workspace_lock import workspace_lock

if TYPE_CHECKING:
    from optuna.study import Study

_FOLDS: Final = 5
#: Standard errors by which the best trial must beat the defaults.
_ERRORS: Final = 2.0
#: Rounds of a whole trial.
ROUNDS: Final = 300
#: With fewer complete trials an importance of parameters would be made up.
_ENOUGH: Final = 10


@dataclass(frozen=True)
class TuneResult:
    """The best parameters of one collection, or why there are none.

    Attributes:
        trials: finished trials of the study, of them ``fresh`` by this call and ``pruned`` early.
        mean, std: out-of-fold score over graphs of the chosen trial (tau; tiles: 1 - slowdown@5).
        note: why the chosen trial is not the best one.
        pictures: SVG files: optimization history and parameter importances.
    """

    collection: str
    trials: int = 0
    fresh: int = 0
    pruned: int = 0
    mean: float = float("nan")
    std: float = float("nan")
    rounds: int = 0
    params: dict[str, Any] | None = None
    seconds: float = 0.0
    note: str = ""
    pictures: Sequence[Path] = ()
    skipped: str = ""


def tune(
    workspace: Workspace,
    *,
    trials: int,
    collections: Sequence[str] = (),
    timeout: float | None = None,
    model: str = DEFAULT,
    fit: FitSettings | None = None,
    study: StudyOptions | None = None,
    progress: Progress | None = None,
) -> list[TuneResult]:
    """Bring the study of each collection to ``trials`` finished trials and write the best parameters.

    The value of a trial is the mean score over graphs, each ranked by a model that never saw its family (tiles: a
    kernel of its kind), at the best number of rounds; with ``study.select`` "robust" minus a quarter of the spread.
    A study is stored in the workspace or at ``study.storage`` and resumed by the next call; several processes can
    optimize it at once. The defaults are the first trial, and they stay where the best trial beats them by less
    than two standard errors over graphs. ``timeout`` is in seconds per collection.

    Each ranker has its own studies and best parameters; the members of an ensemble take the parameters of theirs.
    A collection that cannot be tuned is skipped with a reason; it raises `CollectionError` when it was asked for by
    name or when nothing at all could be tuned.
    """
    fit, options = fit or FitSettings(ROUNDS), study or StudyOptions()
    require_ranges(trials=trials)
    require_seconds("timeout", timeout)
    ranker_class(model)
    workspace.require_writable()
    results = []
    for collection in chosen_collections(workspace, collections):
        try:
            training = read_training_set(workspace, collection)
            plan = FoldPlan.of(training.data, _FOLDS)
            if not plan.folds:
                raise CollectionError(
                    f"{collection} has one program family ({training.data.families[0]}) in train",
                    expected="two or more, to train on one and score another",
                    do="train uses default parameters for it",
                )
        except CollectionError as error:
            if str(collection) in collections:
                raise
            results.append(TuneResult(str(collection), skipped=str(error)))
            continue
        members = tuned_members(workspace.study(collection), model, collection.kind)
        objective = Objective(training, plan, model, members, fit, options.select)
        with open_storage(options, workspace.study(collection)) as storage:
            opened = open_study(objective, options, storage)
            results.append(_search(workspace, objective, opened, trials, timeout, progress))
    if all(result.skipped for result in results):
        raise CollectionError("; ".join(result.skipped for result in results))
    return results


def _search(
    workspace: Workspace,
    objective: Objective,
    study: Study,
    trials: int,
    timeout: float | None,
    progress: Progress | None,
) -> TuneResult:
    """Run what is missing of ``trials`` and save the best parameters after each: a killed study leaves them."""
    collection, began, fresh = objective.training.collection, time.monotonic(), 0

    def count(*states: TrialState) -> int:
        return len(study.get_trials(deepcopy=False, states=states))

    def after(study: Study, trial: FrozenTrial) -> None:
        nonlocal fresh
        fresh += 1
        chosen, _ = choose(study, objective)
        if chosen is not None:
            _save(workspace, objective, study, chosen)
        score = "out-of-fold score {mean:.3f} ± {std:.3f}".format(**chosen.user_attrs[RESULT]) if chosen else ""
        step(f"{collection} {score}")

    missing = max(0, trials - count(*FINISHED))
    with steps_of(progress, f"tuning {collection}", missing) as step:
        if missing:
            # Running trials of other processes count, too: else each process would run one too many.
            enough = MaxTrialsCallback(trials, states=(*FINISHED, TrialState.RUNNING))
            study.optimize(objective, timeout=timeout, callbacks=[after, enough])
    chosen, note = choose(study, objective)
    if chosen is None:
        raise XlarankError(f"no trial of {collection} was finished", do="give it more time with a longer --timeout")
    _save(workspace, objective, study, chosen)
    robust = ("robust",) if objective.select == "robust" else ()
    picture = "-".join(("tune", *collection.parts, objective.model, *robust)) + ".svg"
    score = f"{score_name(str(collection))}, {objective.select}"
    best = {name: value for name, value in chosen.user_attrs[RESULT].items() if name != "graphs"}
    return TuneResult(
        str(collection), count(*FINISHED), fresh, count(TrialState.PRUNED), **best, note=note,
        pictures=draw_study(study, workspace.reports() / picture, score), seconds=time.monotonic() - began,
    )  # fmt: skip


def _save(workspace: Workspace, objective: Objective, study: Study, chosen: FrozenTrial) -> None:
    """Save the chosen parameters for `train`, and a table of all trials."""
    training, model = objective.training, objective.model
    folder = workspace.study(training.collection)
    folds = [sorted({training.data.families[g] for g in held}) for held in objective.plan.held]
    best = BestParams(
        model, **chosen.user_attrs[RESULT], select=objective.select, trial=chosen.number, folds=folds,
        code_hash=training.manifest.recipe.code_hash,
    )  # fmt: skip
    with workspace_lock(workspace, Silent()):
        training.require_current(workspace)
        best.save(folder)
    with atomic_write(folder / f"trials-{model}.csv") as partial:
        table = study.trials_dataframe(attrs=("number", "value", "duration", "params", "state"))
        table.to_csv(partial, index=False)


def choose(study: Study, objective: Objective) -> tuple[FrozenTrial | None, str]:
    """The trial to train with, None before any is complete, and why it is not the best one where it is not.

    The best of many trials is partly the luckiest, and with few graphs luck is large: the defaults stay
    unless the best beats them, graph by graph, by two standard errors.
    """
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not complete:
        return None, ""
    best = study.best_trial
    defaults = next((trial for trial in complete if trial.params == objective.defaults), best)
    if defaults.number == best.number:
        return best, ""
    mean, error = paired_difference(
        best.user_attrs[RESULT]["graphs"], defaults.user_attrs[RESULT]["graphs"], objective.select
    )
    if mean > _ERRORS * error:
        return best, ""
    return defaults, f"the best trial beats the defaults by {mean:.3f} ± {error:.3f} only, so the defaults stay"


def draw_study(study: Study, path: Path, score: str) -> list[Path]:
    """Write the optimization history to an SVG and, after ten complete trials, the parameter importances beside it.

    ``score`` names the score. Returns the files.
    """
    import matplotlib as mpl
    from matplotlib import pyplot as plt
    from optuna.importance import PedAnovaImportanceEvaluator
    from optuna.visualization import matplotlib as draw

    kinds: dict[Path, Callable[[], Any]] = {path: lambda: draw.plot_optimization_history(study, target_name=score)}
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len({trial.value for trial in complete}) >= _ENOUGH:
        evaluator = PedAnovaImportanceEvaluator()
        beside = path.with_stem(f"{path.stem}-importance")
        kinds[beside] = lambda: draw.plot_param_importances(study, evaluator=evaluator)
    for file, plot in kinds.items():
        with mpl.rc_context({"svg.hashsalt": file.stem, "svg.fonttype": "none"}):
            axes = plot()
            stream = io.StringIO()
            axes.figure.savefig(stream, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
            plt.close(axes.figure)
        text = stream.getvalue()
        with atomic_write(file) as partial:
            partial.write_text(text[text.index("<svg") :], encoding="utf-8")  # it also stands within pages
    return list(kinds)
