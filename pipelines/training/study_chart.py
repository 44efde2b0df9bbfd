"""Pictures of a study: its history, and the importance of parameters."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from optuna.study import Study
from optuna.trial import TrialState

from xlarank.data.files import atomic_write
from xlarank.pipelines.support.verdicts import score_name
from xlarank.pipelines.training.objective import RESULT, Objective, defaults_of


def draw_study(study: Study, objective: Objective, path: Path) -> list[Path]:
    """Write SVGs of the optimization history and, after ten scores, parameter importances."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt
    from matplotlib.ticker import MaxNLocator
    from optuna.importance import PedAnovaImportanceEvaluator
    from optuna.visualization import matplotlib as draw

    collection = objective.training.collection
    score = f"{score_name(str(collection))}, {objective.select}"
    history = draw.plot_optimization_history(study, target_name=score)
    history.xaxis.set_major_locator(MaxNLocator(integer=True))
    plots: dict[Path, Any] = {path: history}
    defaults = defaults_of(study, objective)
    if defaults is not None and defaults.value is not None:
        result = defaults.user_attrs[RESULT]
        error = result["std"] / len(result["graphs"]) ** 0.5
        label = "defaults ± standard error over graphs"
        history.axhline(defaults.value, color="black", linestyle="--", label=label)
        history.axhspan(defaults.value - error, defaults.value + error, color="black", alpha=0.1)
        history.legend()
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len({trial.value for trial in complete}) >= 10:
        importances = draw.plot_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
        plots[path.with_stem(f"{path.stem}-importance")] = importances
    for file, axes in plots.items():
        axes.set_title(f"{collection}, {objective.model}: {axes.get_title()}")
        stream = io.StringIO()
        metadata = {"Date": None, "Creator": None}
        with mpl.rc_context({"svg.hashsalt": file.stem, "svg.fonttype": "none"}):
            axes.figure.savefig(stream, format="svg", bbox_inches="tight", metadata=metadata)
        plt.close(axes.figure)
        with atomic_write(file) as temporary:
            temporary.write_text("<svg" + stream.getvalue().partition("<svg")[2], encoding="utf-8")
    return list(plots)
