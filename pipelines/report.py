"""HTML report of a workspace: the board of each collection, ranks, copies and columns."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

import xlarank
from xlarank.data.collection import Collection, Names, find_data_root
from xlarank.data.errors import XlarankError, counted
from xlarank.data.files import atomic_write
from xlarank.data.graph import read_graph
from xlarank.data.workspace import Workspace, WorkspaceLike
from xlarank.features.catalogue import meaning_of
from xlarank.features.store import Manifest, read_manifest
from xlarank.models.arrays import Floats
from xlarank.models.model import Model
from xlarank.models.objectives import mean_rank
from xlarank.models.validation.metrics import summary
from xlarank.pipelines.ranking.model_choice import choose_for_collection
from xlarank.pipelines.ranking.score_difference import Explanation, explain_graph
from xlarank.pipelines.support.baselines import Rankings
from xlarank.pipelines.support.evaluation import (
    add_metrics,
    compared,
    comparison_cells,
    first_of,
    graphs_to_score,
    mean_over_collections,
    out_of_fold,
    score_name,
    with_interval,
)
from xlarank.pipelines.support.progress import steps_of
from xlarank.pipelines.support.workspaces import chosen_collections

#: A table row: cell by column heading.
Row = dict[str, Any]

#: The evaluated split; graphs that the ranker knows are left out.
SPLIT: Final = "valid"
#: Metrics beside the score in the table of graphs.
_SLOWDOWNS: Final = ("slowdown@1", "slowdown@5")
#: Maximum number of dots of a chart.
_MAX_POINTS: Final = 500
#: Number of rows of tables of copies and of columns.
_TOP: Final = 12


def report(
    workspace: WorkspaceLike, out: str | Path, *, collection: Names = ()
) -> list[dict[str, Any]]:
    """Write one self-contained page to ``out``, and return its `section` of each collection.

    Rankers are scored anew on the valid split; trained ones have their out-of-fold scores if there
    is none. Raises `CollectionError` if the workspace has no stored features.
    """
    work = Workspace.of(workspace)
    chosen = chosen_collections(work, collection)
    sections = []
    with steps_of("reporting", len(chosen)) as step:
        for each in chosen:
            sections.append(section(work, each))
            step(str(each))
    page = _page(work, sections).encode("utf-8", "backslashreplace")  # names of files
    with atomic_write(Path(out)) as partial:
        partial.write_bytes(page)
    return sections


def section(workspace: Workspace, collection: Collection) -> dict[str, Any]:
    """Evaluate what ranks a collection; return what ``report.html.jinja`` shows of it, by name.

    Without scores, ``metrics`` are empty, and ``reason`` says why.
    """
    shown: dict[str, Any] = {"collection": collection, "name": str(collection), "metrics": {}}
    rankings: Rankings = {}
    left_out: dict[str, str] = {}
    ranks: dict[str, tuple[Floats, Floats]] = {}
    held_out = f"{SPLIT} split"
    try:
        choice = choose_for_collection(workspace, collection)
        manifest = read_manifest(workspace, collection, SPLIT)
        if manifest is not None:
            models = dict.fromkeys([choice.model, choice.trained or choice.model])
            known = dict[str, str]()
            for model in models:
                model.require(manifest)
                names = model.require_card().known_graphs
                known |= dict.fromkeys(names, "in the training set of the model")
            for rows in graphs_to_score(workspace, collection, SPLIT, manifest, left_out, known):
                for model in models:
                    add_metrics(rankings, collection, rows, model.name, model.score(rows))
                predicted = choice.model.score(rows)[rows.group]
                ranks[rows.name] = mean_rank(predicted), mean_rank(rows.cost)
        if not rankings and choice.trained is not None:
            card = choice.trained.require_card()
            rankings = first_of(out_of_fold(workspace, collection, card), choice.model.name)
            held_out = f"out of fold by {card.folds_by.replace('-', ' ')}"
            left_out.clear()
    except XlarankError as error:
        return shown | {"reason": str(error)}
    if not rankings:
        reason = f"it has no labelled graph in {SPLIT} that the ranker does not know"
        return shown | {"reason": reason}
    ranking, metrics = next(iter(rankings.items()))
    metric = score_name(str(collection))
    scores = {graph: values["score"] for graph, values in metrics.items()}
    worst_first = sorted(scores, key=lambda graph: (scores[graph], graph))
    mean = with_interval(summary(scores))
    graphs_shown = counted(len(scores), "graph")
    explained = None
    if manifest is not None and ranks:
        worst = worst_first[0]
        explained = _explain(collection, choice.model, manifest, worst, *ranks[worst])
    return shown | {
        "metrics": metrics,
        "sentence": f"{metric} {mean} by {ranking} on {graphs_shown}, {held_out}",
        "ranker": choice.model,
        "ranked_by": choice.reason.replace(str(workspace.root), workspace.root.name),
        "board": comparison_cells(compared(rankings), metric),
        "graphs": [
            {"graph": name, metric: scores[name]} | {key: metrics[name][key] for key in _SLOWDOWNS}
            for name in worst_first
        ],
        "left_out": left_out,
        "charts": _rank_charts(metric, {graph: scores[graph] for graph in worst_first}, ranks),
        "worst": explained,
        "copies": copy_rows(explained),
        "columns": column_rows(choice.model),
    }


def _explain(
    collection: Collection,
    model: Model,
    manifest: Manifest,
    name: str,
    predicted: Floats,
    measured: Floats,
) -> Explanation | None:
    """Explain why the fastest configuration is not the first, or None.

    It is None if the fastest is the first, or if the graph's file is gone.
    """
    fastest = int(measured.argmin())
    if predicted[fastest] == predicted.min():
        return None
    with suppress(XlarankError):  # the file cannot be read
        npz = find_data_root(manifest.data_root).npz
        path = npz.joinpath(*collection.parts, SPLIT, f"{name}.npz")
        graph = read_graph(path, collection.kind)
        return explain_graph(graph, model, collection.hardware, against=fastest)
    return None


def column_rows(model: Model) -> list[Row]:
    """Return the columns that a ranker uses, the most important first."""
    if model.rule is not None:
        return [{"column": name, "meaning": meaning_of(name)} for name in model.rule.columns]
    rows: list[Row] = []
    for name, share in [*model.importance().items()][:_TOP]:
        rows.append({"column": name, "share of the gain": share, "meaning": meaning_of(name)})
    return rows


def copy_rows(explained: Explanation | None) -> list[Row]:
    """Return the copies that only one of the explained configurations needs."""
    rows: list[Row] = []
    if explained is not None:
        first = explained.configuration, explained.copies
        for config, copies in (first, (explained.against, explained.copies_against)):
            for copy in copies[: _TOP // 2]:
                row = {"needed by": f"configuration {config}", "output of node": copy.node}
                rows.append(row | {"layout": copy.orders, "µs": copy.nanoseconds / 1e3})
    return rows


def _rank_charts(
    metric: str, scores: Mapping[str, float], ranks: Mapping[str, tuple[Floats, Floats]]
) -> list[str]:
    """Draw predicted ranks against ranks by label as embedded SVGs; equal charts, equal texts.

    Shown are the best, the median and the worst graph (``scores``: the worst first); none if scores
    are out of fold. A library that draws in the browser would put its script into every page.
    """
    import matplotlib as mpl  # slow
    from matplotlib.figure import Figure

    names = [name for name in scores if name in ranks]
    if not names:
        return []
    positions = {names[0]: "worst", names[len(names) // 2]: "median", names[-1]: "best"}
    pictures = []
    for name, position in reversed(positions.items()):
        predicted, measured = ranks[name]
        figure = Figure(figsize=(2.7, 2.9), layout="constrained")
        axes = figure.subplots()
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(linewidth=0.6)
        step = max(1, len(predicted) // _MAX_POINTS)
        axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
        axes.plot(measured[::step], predicted[::step], "o", markersize=3, alpha=0.6)
        shown_name = name if len(name) <= 26 else f"…{name[-25:]}"
        title = f"{position}: {shown_name}\n{metric} {scores[name]:.3f}"
        axes.set_title(title, fontsize=10, parse_math=False)
        axes.set(xlabel="rank by label", ylabel="predicted rank", aspect="equal")
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        stream = io.BytesIO()
        with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "xlarank"}):
            figure.savefig(stream, format="svg", metadata={"Date": None})
        content = base64.b64encode(stream.getvalue()).decode("ascii")
        pictures.append(f'<img alt="" width="329" src="data:image/svg+xml;base64,{content}"/>')
    return pictures


def _page(workspace: Workspace, sections: Sequence[dict[str, Any]]) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = _cell
    scored = [section for section in sections if section["metrics"]]
    overall = mean_over_collections({section["name"]: section["metrics"] for section in scored})
    return environment.get_template("report.html.jinja").render(
        workspace=workspace.root.name,
        version=xlarank.__version__,
        scored=scored,
        unscored=[section for section in sections if not section["metrics"]],
        overall=overall,
        counted=counted,
        score_name=score_name,
    )


def _cell(value: object) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:,.3f}".replace("-0.000", "0.000")
    return "-" if value is None else str(value)
