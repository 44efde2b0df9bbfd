"""Pictures of a study, drawn by Optuna with matplotlib."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from xlarank.data.files import atomic_write

if TYPE_CHECKING:
    import optuna

#: With fewer complete trials an importance would be made up.
_ENOUGH: Final = 10


def draw_study(study: optuna.Study, path: Path, score: str) -> list[Path]:
    """Write the optimization history to an SVG and, after ten complete trials, the parameter importances beside it.

    ``score`` names the score. Returns the files; none without matplotlib.
    """
    try:
        import matplotlib as mpl
        from matplotlib import pyplot as plt
    except ImportError:
        return []
    from optuna.importance import PedAnovaImportanceEvaluator
    from optuna.trial import TrialState
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
