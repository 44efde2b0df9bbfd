"""Functions on data roots and workspaces, one for each command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from xlarank.data.graph import GraphLike
from xlarank.data.workspace import DEFAULT_ROOT, Workspace
from xlarank.graph_api import model_or_name

if TYPE_CHECKING:  # slow; imported inside functions, so that reading a graph stays fast
    import pandas as pd
    import polars as pl

    from xlarank.graph_api import ModelFrom
    from xlarank.graph_ranker import GraphRanker
    from xlarank.pipelines.build_features import BuildReport
    from xlarank.pipelines.submit import Checked, Submission
    from xlarank.pipelines.support.evaluation import Evaluation
    from xlarank.pipelines.train import Training
    from xlarank.pipelines.training.graphs import OutOfFold

    Frame: TypeAlias = pl.DataFrame | pd.DataFrame

#: One name, or several.
Names: TypeAlias = str | Sequence[str]


def build_features(
    data_root: str | Path | None = None,
    workspace: str | Path = DEFAULT_ROOT,
    *,
    collection: Names = (),
    split: Names = (),
    max_configs: int = 0,
    jobs: int = 0,
    scheduler: str | None = None,
) -> BuildReport:
    """Compute and store the rows of graph files; call it again to resume.

    Args:
        data_root: default: the environment variable ``XLARANK_DATA``, Kaggle's folder of the
            competition, ``~/data/tpugraphs``, or the embedded sample, the first that exists.
        collection: collections such as "layout:xla:random" or patterns; default: all.
        split: "train", "valid" or "test"; default: all.
        max_configs: distinct configurations kept of each train graph, drawn at random; 0: all.
            Valid and test graphs are always complete.
        jobs: number of processes; 0: by cores and sizes. A script that uses several has to keep
            this call below ``if __name__ == "__main__":``; a notebook has not.
        scheduler: host:port of a Dask scheduler.

    Raises `DataRootError`, `CollectionError`, `WorkspaceError`, or `XlarankError` for a cluster.

    Examples:
        >>> import tempfile, xlarank
        >>> work = tempfile.mkdtemp()
        >>> built = xlarank.build_features(xlarank.SAMPLE, work, collection="tile:cpu")
        >>> built.to_polars()[["split", "graphs"]].rows()
        [('train', 30), ('valid', 12), ('test', 15)]
    """
    from xlarank.data.collection import find_data_root
    from xlarank.pipelines.build_features import build_features as run

    return run(
        find_data_root(None if data_root is None else Path(data_root)),
        Workspace(Path(workspace)),
        collections=_listed(collection),
        splits=_listed(split),
        max_configs=max_configs,
        jobs=jobs,
        scheduler=scheduler,
    )


def train(
    workspace: str | Path = DEFAULT_ROOT,
    *,
    collection: Names = (),
    also_from: Names = (),
    model: str = "lambdarank",
    seeds: int = 3,
    with_valid: bool = False,
    max_rows: int | None = None,
    rounds: int = 300,
    select: str = "mean",
    seed: int = 0,
    threads: int = 0,
) -> Training:
    """Train and save the model of each collection of a workspace, as the command ``train``.

    The result lists a `TrainResult` for each collection; its table is the board out of fold.

    Args:
        collection: collections or patterns; default: all with rows.
        also_from: additional training collections of the same kind, which are not scored.
        model: name of the ranker.
        seeds: number of boosters whose scores are averaged.
        with_valid: also train on the valid split; afterwards, scores on it are meaningless.
        rounds: maximum number of boosting rounds; folds choose.
        max_rows: training rows of a collection, sampled evenly from its graphs; 0: all, None:
            100,000 for layouts, 500,000 for tiles.
        select: score that folds choose by: "mean", or "robust" (less a quarter of the spread).

    Raises `CollectionError` or `ModelError`.

    Examples:
        >>> import tempfile, xlarank
        >>> work = tempfile.mkdtemp()
        >>> built = xlarank.build_features(xlarank.SAMPLE, work, collection="tile:cpu")
        >>> trained = xlarank.train(work, seeds=1, rounds=20, threads=1)
        >>> print(trained)
        tile:cpu is ranked by ..., 0.9... out of fold on 30 graphs; ...
        >>> trained.to_polars().columns[:4]
        ['collection', 'ranker', 'graphs', 'score']
    """
    from xlarank.models.training_data import FitSettings
    from xlarank.pipelines.train import train as run

    return run(
        Workspace(Path(workspace)),
        collections=_listed(collection),
        also_from=_listed(also_from),
        model=model,
        seeds=seeds,
        with_valid=with_valid,
        fit=FitSettings(rounds, seed, threads),
        select=select,
        max_rows=max_rows,
    )


def cross_validate(
    rows: Iterable[GraphLike] | Frame, model: str | GraphRanker | None = None
) -> OutOfFold:
    """Score each graph by a ranker fitted without its family, at the best number of rounds.

    ``rows`` is a frame of one collection as `load_rows` returns it, with any further columns of
    numbers, or a list of measured graphs. The folds of a frame are those of `train`, its columns
    ``fold`` and ``held_out``; without them families are held out. ``model`` is a `GraphRanker`,
    which is not fitted itself, or the name of a ranker; by default ``GraphRanker()``.

    Tiles of unseen kernel families are ranked half by the compiler's default, as by the models of
    `train`; `GraphRanker.predict` ranks without this help.

    Raises `xlarank.data.errors.ModelError` for rows that cannot be used.

    Examples:
        >>> import xlarank
        >>> kernels = sorted((xlarank.SAMPLE / "npz/tile/cpu/train").glob("*__a.npz"))
        >>> ranker = xlarank.GraphRanker("ranknet", n_estimators=20, n_jobs=1)
        >>> xlarank.cross_validate(kernels[:5], ranker).mean > 0.5
        True
    """
    from xlarank.graph_ranker import GraphRanker
    from xlarank.pipelines.training.graphs import TrainingRows

    if model is None or isinstance(model, str):
        model = GraphRanker() if model is None else GraphRanker(model)
    training = TrainingRows.of(rows, model.target)
    return training.cross_validate(model.unfitted(training.collection.kind), model.settings)


def evaluate(
    workspace: str | Path = DEFAULT_ROOT,
    *,
    split: str = "valid",
    collection: Names = (),
    model_from: ModelFrom | None = None,
    official_indices: str | Path | None = None,
    scores: Frame | str | Path | None = None,
) -> Evaluation:
    """Evaluate what ranks each collection, or ``scores`` instead, on a labelled split.

    ``model_from`` is as in `rank`, ``scores`` as in `submit`, and ``official_indices`` is a folder
    of ``<source>_<search>.json`` files of layout configurations. Raises `CollectionError`,
    `ModelError` or `XlarankError`.

    Examples:
        >>> import tempfile, xlarank
        >>> work = tempfile.mkdtemp()
        >>> built = xlarank.build_features(xlarank.SAMPLE, work, collection="tile:cpu")
        >>> board = xlarank.evaluate(work).to_polars()  # without a model, a formula ranks
        >>> board["ranker"][0], board["graphs"][0]
        ('estimated time', 12)
    """
    from xlarank.pipelines.evaluate import evaluate as run
    from xlarank.pipelines.support.score_files import Scores

    return run(
        Workspace(Path(workspace)),
        split=split,
        collections=_listed(collection),
        official_indices=None if official_indices is None else Path(official_indices),
        model_from=model_or_name(model_from),
        scores=Scores.read(scores, split),
    )


def submit(
    out: str | Path = "submission.csv",
    workspace: str | Path = DEFAULT_ROOT,
    *,
    data_root: str | Path | None = None,
    collection: Names = (),
    model_from: ModelFrom | None = None,
    scores: Frame | str | Path | None = None,
) -> Submission:
    """Write and check a Kaggle submission of the test graphs of a data root.

    Nothing has to be built or trained before. ``scores`` is a frame or a file with the columns
    ``graph``, ``configuration`` and ``score``, lower is faster, and optionally ``collection`` and
    ``split``, for any of the graphs; the others are ranked as by `rank`. The data root is by
    default that of the workspace.

    Raises `xlarank.data.errors.CollectionError` if there is nothing to rank, `XlarankError` for
    scores that do not fit, and `ModelError` if ``model_from`` has no model.

    Examples:
        >>> import tempfile, xlarank
        >>> from pathlib import Path
        >>> work = Path(tempfile.mkdtemp())
        >>> out = work / "submission.csv"
        >>> submission = xlarank.submit(out, work, data_root=xlarank.SAMPLE, collection="tile:cpu")
        >>> submission.rows, submission.unranked
        ({'tile:cpu': 15}, 0)
        >>> xlarank.check_submission(out, data_root=xlarank.SAMPLE, collection="tile:cpu").problems
        []
    """
    from xlarank.data.collection import find_data_root
    from xlarank.pipelines.submit import submit as run
    from xlarank.pipelines.support.score_files import Scores

    return run(
        Workspace(Path(workspace)),
        Path(out),
        data_root=None if data_root is None else find_data_root(Path(data_root)),
        collections=_listed(collection),
        model_from=model_or_name(model_from),
        scores=Scores.read(scores, "test"),
    )


def check_submission(
    file: str | Path, *, data_root: str | Path | None = None, collection: Names = ()
) -> Checked:
    """Return the problems of a submission of the test graphs of a data root, which is by default
    chosen as in `build_features`.
    """
    from xlarank.data.collection import find_data_root
    from xlarank.pipelines.submit import check_submission as run

    root = find_data_root(None if data_root is None else Path(data_root))
    return run(Path(file), root, collections=_listed(collection))


def _listed(names: Names) -> Sequence[str]:
    return [names] if isinstance(names, str) else names
