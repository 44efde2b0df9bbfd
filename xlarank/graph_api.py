"""Functions on one graph or program, and the display of progress."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from xlarank.data.graph import GraphLike
from xlarank.data.workspace import DEFAULT_ROOT, Workspace

if TYPE_CHECKING:  # slow; imported inside functions, so that reading a graph stays fast
    from xlarank.graph_ranker import GraphRanker
    from xlarank.models.model import Model
    from xlarank.pipelines.programs.advise.advice import Advice
    from xlarank.pipelines.rank import Ranking
    from xlarank.pipelines.ranking.score_difference import Explanation

    #: Ranker: "trained", "shipped", a collection with a model, the folder of one, or a ranker.
    ModelFrom: TypeAlias = str | Path | GraphRanker


def rank(
    graph: GraphLike,
    workspace: str | Path = DEFAULT_ROOT,
    *,
    target: str | None = None,
    collection: str | None = None,
    model_from: ModelFrom | None = None,
) -> Ranking:
    """Rank the configurations of a graph, or of an npz file.

    The hardware is ``target`` ("tpugraphs" for a file of the TpuGraphs dataset, or a chip:
    "tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v6e", "cpu", "nvidia-h200"), or the hardware of
    ``collection``; else of the collection whose folder contains the file, else as the file says.

    If the workspace has a trained model of ``collection``, by default the folder's, the
    highest mean out of fold ranks: the model, or the ranker that needs no training. That is the
    estimated time, for tiles of TPUs trees that learned from estimates of the TPU's compiler.
    ``model_from`` decides otherwise: "trained", "shipped", a collection with a model, the folder
    of one, or a fitted `GraphRanker`.

    Raises `xlarank.data.errors.GraphFileError`, `ParameterError` if nothing names the hardware, and
    `ModelError` if there is no model.

    Examples:
        >>> import xlarank
        >>> kernel = xlarank.SAMPLE / "npz/tile/cpu/valid/bmm_tb__a.npz"
        >>> ranking = xlarank.rank(kernel, workspace="nowhere")
        >>> ranking.reason
        'estimated time of the loops on cpu'
        >>> len(ranking.best(5)), ranking.to_polars().height
        (5, 64)
    """
    from xlarank.pipelines.rank import rank as run

    return run(
        Workspace(Path(workspace)),
        graph,
        target=target,
        collection=collection,
        model_from=model_or_name(model_from),
    )


def explain(
    graph: GraphLike,
    workspace: str | Path = DEFAULT_ROOT,
    *,
    config: int | None = None,
    against: str | int | None = None,
    target: str | None = None,
    collection: str | None = None,
    model_from: ModelFrom | None = None,
) -> Explanation:
    """Explain the difference of the scores of two configurations, by cause, column and node.

    ``config`` is by default the first of the ranking, and ``against`` the compiler's default; the
    other arguments are those of `rank`.

    Examples:
        >>> import xlarank
        >>> mlp = xlarank.SAMPLE / "npz/layout/cpu/random/valid/mlp__a.npz"
        >>> explanation = xlarank.explain(mlp, workspace="nowhere")
        >>> explanation.ranks[0], explanation.to_polars().columns
        (1, ['part', 'name', 'contribution'])
    """
    from xlarank.pipelines.ranking.score_difference import explain as run

    return run(
        Workspace(Path(workspace)),
        graph,
        config=config,
        against=against,
        target=target,
        collection=collection,
        model_from=model_or_name(model_from),
    )


def advise(
    program: str | Path,
    *,
    target: str = "tpu-v3",
    budget: int = 20,
    measure: bool = False,
    out: str | Path = Path(DEFAULT_ROOT) / "advice",
    minutes: float = 60.0,
    jobs: int = 1,
) -> Advice:
    """Show the copies that layouts force in a program, and search for faster layouts.

    ``program`` is an HLO file or ``module:function``. The TPU's compiler estimates times, without a
    TPU (extra: collect); with ``measure``, or for "cpu" and "device", programs run here.

    Args:
        budget: number of compilations; 1: diagnosis only.
        out: folder for the advice and the edited module.
        jobs: number of configurations compiled at a time.

    Raises `CompilerError` and `HloError`.
    """
    from xlarank.pipelines.programs.advise.advice import advise as run
    from xlarank.pipelines.programs.compiler.session import Compiler

    with Compiler(target, jobs=jobs) as compiler:
        return run(
            str(program), compiler, out=Path(out), budget=budget, minutes=minutes, measure=measure
        )


def show_progress(show: bool = True) -> None:
    """Print the progress of later calls, one line for each job, or stop printing it."""
    from xlarank.pipelines.support import progress

    progress.show_progress(progress.print_steps if show else None)


def model_or_name(model_from: ModelFrom | None) -> str | Path | Model | None:
    """Return the fitted model of a ranker, and names as they are."""
    if model_from is None or isinstance(model_from, str | Path):
        return model_from
    return model_from.fitted_model
