"""Write the report of a workspace: one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import xlarank
from xlarank.data.errors import CollectionError, XlarankError
from xlarank.data.files import atomic_write
from xlarank.data.workspace import Workspace
from xlarank.pipelines.reporting import views
from xlarank.pipelines.reporting.gather import MODEL, NO_MODEL, CollectionFacts, gather, read_runs
from xlarank.pipelines.support.evaluation import summary
from xlarank.pipelines.support.progress import Progress, steps_of
from xlarank.pipelines.support.workspace_collections import chosen_collections

if TYPE_CHECKING:
    from jinja2 import Template


@dataclass(frozen=True)
class Report:
    """A page of ``size`` bytes, mean score and number of graphs where a model was scored, else why not."""

    out: Path
    size: int
    judged: dict[str, tuple[float, int]]
    left_out: dict[str, str]


def report(
    workspace: Workspace,
    out: Path | None = None,
    *,
    compare: Workspace | None = None,
    collections: Sequence[str] = (),
    progress: Progress | None = None,
) -> Report:
    """Write the report of a workspace to ``out`` (by default ``report.html`` in its folder of reports).

    The page holds everything it shows: it opens from disk without a network, in light and in dark. Models are
    scored on the valid split anew; those of ``compare``, another workspace, too, and compared graph by graph.

    Raises `CollectionError` where the workspace holds nothing, and `XlarankError` without matplotlib or jinja2.
    """
    chosen = chosen_collections(workspace, collections)
    if not chosen:
        raise CollectionError(f"{workspace.root} holds no features", do="run build-features and train first")
    all_facts: list[CollectionFacts] = []
    others: dict[str, CollectionFacts] = {}
    with steps_of(progress, "reporting", len(chosen)) as step:
        for collection in chosen:
            all_facts.append(gather(workspace, collection))
            if compare is not None:
                others[str(collection)] = gather(compare, collection, explained=False)
            step(str(collection))
    text = _page(workspace, all_facts, others, compare)
    out = out or workspace.reports() / "report.html"
    with atomic_write(out) as partial:
        partial.write_text(text, encoding="utf-8")
    return Report(
        out=out,
        size=len(text.encode()),
        judged={
            one.name: (float(one.column(MODEL, "score").mean()), len(one.graphs)) for one in all_facts if one.graphs
        },
        left_out={one.name: one.why_not for one in all_facts if one.why_not},
    )


def _page(
    workspace: Workspace,
    all_facts: Sequence[CollectionFacts],
    others: dict[str, CollectionFacts],
    compare: Workspace | None,
) -> str:
    trained = [one for one in all_facts if one.model is not None]
    graphs = sum(len(manifest.graphs) for one in all_facts for manifest in one.manifests.values())
    data, left_out = views.data_views(all_facts)
    verdicts = {one.name: views.verdict(one) for one in trained if one.graphs}
    return _template().render(
        about=f"Workspace {workspace.root.name}: {graphs:,} graphs, written by xlarank {xlarank.__version__}. "
        "A click on the head of a column sorts.",
        summary=summary(verdicts.values()),
        verdicts=verdicts,
        data=data,
        left_out=left_out,
        collections=[
            views.collection_view(
                one, number, (others[one.name], compare.root.name) if compare is not None else None
            )
            for number, one in enumerate(trained)
        ],
        untrained=[
            one.name + (f" ({one.why_not})" if one.why_not != NO_MODEL else "")
            for one in all_facts
            if one.model is None
        ],
        studies=[picture for one in all_facts for picture in one.studies],
        runs=views.runs_view(read_runs(workspace)),
        versions=views.versions_view(all_facts),
    )


def _template() -> Template:
    try:
        import jinja2
    except ImportError as error:
        raise XlarankError(
            f"the report needs jinja2 ({error})", expected="jinja2 3.1 or newer", do="pip install 'xlarank[report]'"
        ) from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(views.__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = views.format_cell
    return environment.get_template("report.html.jinja")
