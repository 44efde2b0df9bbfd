"""One page that says how good the rankings of a workspace are, what they rest on, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import xlarank
from xlarank.data.errors import CollectionError
from xlarank.data.files import atomic_write
from xlarank.data.workspace import Workspace
from xlarank.pipelines.reporting import sections
from xlarank.pipelines.reporting.gather import MODEL, CollectionFacts, gather, read_runs
from xlarank.pipelines.reporting.html import Section, facts, page, paragraph
from xlarank.pipelines.support.progress import Progress, Silent
from xlarank.pipelines.support.workspace_collections import chosen_collections


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        out: the page.
        size: its bytes.
        judged: collection -> mean score and number of graphs.
        left_out: collection -> why it could not be judged.
    """

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
    judged on the valid split anew; those of ``compare``, another workspace, too, and compared graph by graph.

    Raises `CollectionError` where the workspace holds nothing, and `XlarankError` without matplotlib.
    """
    progress = progress or Silent()
    chosen = chosen_collections(workspace, collections)
    if not chosen:
        raise CollectionError(f"{workspace.root} holds no features", do="run build-features and train first")
    progress.begin("reporting", len(chosen) * (1 if compare is None else 2))
    all_facts: list[CollectionFacts] = []
    others: dict[str, CollectionFacts] = {}
    for collection in chosen:
        all_facts.append(gather(workspace, collection))
        progress.step(str(collection))
        if compare is not None:
            others[str(collection)] = gather(compare, collection, explained=False)
            progress.step(f"{collection} in {compare.root}")
    progress.end()
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
    parts = [Section("data", "Data", sections.data_section(all_facts))]
    for number, one in enumerate(all_facts):
        mark = f"c{number}"
        scores = f"<h3>Scores</h3>{sections.scores_section(one)}{sections.folds_section(one)}"
        if one.name in others:
            scores += "<h3>Against the other run</h3>"
            scores += sections.compared_section(one, others[one.name], str(compare.root) if compare else "")
        for title, inner in (
            ("Predicted against measured", sections.ranks_section(one)),
            ("Where the model is sure", sections.trust_section(one)),
            ("Why the best comes first", sections.explained_section(one)),
            ("What the columns are worth", sections.columns_section(one)),
        ):
            scores += f"<h3>{title}</h3>{inner}" if inner else ""
        parts.append(Section(mark, one.name, scores))
    parts += [
        Section("studies", "Studies", sections.study_section(all_facts)),
        Section("runs", "Time and memory", sections.runs_section(read_runs(workspace))),
        Section("versions", "Versions", sections.versions_section(all_facts)),
    ]
    return page("xlarank report", _lead(workspace, all_facts), parts)


def _lead(workspace: Workspace, all_facts: Sequence[CollectionFacts]) -> str:
    graphs = sum(len(manifest.graphs) for one in all_facts for manifest in one.manifests.values())
    numbers = [(f"{graphs:,}", "graphs found")]
    for one in all_facts:
        if one.graphs:
            baselines = {name: one.column(name, "score").mean() for name in sections.baseline_names(one)}
            best = max(baselines, key=lambda name: baselines[name], default="")
            beside = f"; {best}: {baselines[best]:.3f}" if best else ""
            what = f"{one.name}, {sections.measure(one)} on {len(one.graphs)} valid graphs{beside}"
            numbers.append((f"{one.column(MODEL, 'score').mean():.3f}", what))
    about = f"Workspace {workspace.root}, written by xlarank {xlarank.__version__}. A click on a column sorts."
    return paragraph(about, soft=True) + facts(numbers)
