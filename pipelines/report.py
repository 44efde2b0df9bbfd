"""HTML report of a workspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

import xlarank
from xlarank.data.errors import counted
from xlarank.data.files import atomic_write
from xlarank.data.workspace import Workspace
from xlarank.features.meanings import column_meanings
from xlarank.models.explanation import calibration
from xlarank.pipelines.reporting import gather
from xlarank.pipelines.support.evaluation import column, count_unseen, count_verdicts, score_name, verdict
from xlarank.pipelines.support.progress import Progress, steps_of
from xlarank.pipelines.support.results import leaderboard, read_results
from xlarank.pipelines.support.workspaces import chosen_collections

if TYPE_CHECKING:
    from jinja2 import Template


@dataclass(frozen=True)
class Report:
    """A written report.

    Attributes:
        size: size of the page in bytes.
        scores: mean score and number of graphs by collection.
        left_out: collection -> reason for missing scores.
    """

    out: Path
    size: int
    scores: dict[str, tuple[float, int]]
    left_out: dict[str, str]


def report(
    workspace: Workspace, out: Path | None = None, *, compare: Workspace | None = None,
    collections: Sequence[str] = (), progress: Progress | None = None,
) -> Report:  # fmt: skip
    """Write the report of a workspace to ``out`` (default: ``report.html`` in its reports folder).

    The page is self-contained and has a light and a dark theme. Models are scored anew on the valid split; with
    ``compare``, so are those of another workspace, and both are compared graph by graph.

    Raises `CollectionError` if the workspace has no stored features.
    """
    chosen = chosen_collections(workspace, collections)
    all_facts: list[gather.CollectionFacts] = []
    others: dict[str, gather.CollectionFacts] = {}
    with steps_of(progress, "reporting", len(chosen)) as step:
        for collection in chosen:
            all_facts.append(gather.gather(workspace, collection))
            if compare is not None:
                others[str(collection)] = gather.gather(compare, collection, explained=False)
            step(str(collection))
    evaluated = [facts for facts in all_facts if facts.metrics]
    verdicts = {facts.name: verdict(facts.name, facts.rankings) for facts in evaluated}
    data, left_out = gather.data_rows(all_facts)
    text = _template().render(
        workspace=workspace.root.name, version=xlarank.__version__, graphs=sum(row["graphs"] for row in data),
        summary=count_verdicts(verdicts.values()), verdicts=verdicts, data=data, left_out=left_out,
        trained=[facts for facts in all_facts if facts.model],
        untrained={facts.name: facts.why_not for facts in all_facts if not facts.model},
        others=others, other_name=compare.root.name if compare else "",
        studies=[picture for facts in all_facts for picture in facts.studies],
        board=_board(workspace, [facts.name for facts in all_facts]), runs=gather.read_runs(workspace),
        meanings=column_meanings(), no_model=gather.NO_MODEL,
    )  # fmt: skip
    out = out or workspace.reports() / "report.html"
    with atomic_write(out) as partial:
        partial.write_text(text, encoding="utf-8")
    scores = {facts.name: (float(column(facts.metrics).mean()), len(facts.metrics)) for facts in evaluated}
    return Report(
        out, len(text.encode()), scores, {facts.name: facts.why_not for facts in all_facts if facts.why_not}
    )


def _board(workspace: Workspace, collections: Sequence[str]) -> list[gather.Row]:
    rows = leaderboard(read_results(workspace).filter(pl.col("collection").is_in(collections)))
    held_out = pl.concat_str(pl.lit(", held out by "), "held_out_by").fill_null("")
    tuned = pl.when(pl.col("tuned")).then(pl.lit(" (tuned)")).otherwise(pl.lit(""))
    shown = rows.select(
        "collection", (pl.col("split") + held_out).alias("scored on"), pl.col("ranker") + tuned, "graphs", "mean",
        pl.col("standard_error").alias("standard error"), pl.col("difference").alias("to the first"),
        pl.col("difference_error").alias("its standard error"), "seconds", "version",
        pl.col("time").dt.strftime("%Y-%m-%d %H:%M"),
    )  # fmt: skip
    return shown.to_dicts()


def _template() -> Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(gather.__file__).parent), extensions=["jinja2.ext.do"], autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.globals |= {"calibration": calibration, "gather": gather}
    environment.globals |= {"counted": counted, "score_name": score_name, "count_unseen": count_unseen}
    environment.filters["cell"] = _cell
    return environment.get_template("report.html.jinja")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".replace("-0.000", "0.000")
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
