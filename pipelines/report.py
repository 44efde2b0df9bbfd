"""HTML report of a workspace: the board of each collection, ranks, copies and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

import xlarank
from xlarank.data.collection import Collection, find_data_root
from xlarank.data.errors import XlarankError, counted
from xlarank.data.files import atomic_write
from xlarank.data.graph import read_graph
from xlarank.data.workspace import Workspace
from xlarank.features.meanings import cause_of, meaning_of
from xlarank.features.store import Manifest, read_manifests
from xlarank.models.arrays import Floats
from xlarank.models.card import FOLDS_OF
from xlarank.models.contributions import sum_by_key
from xlarank.models.model import Model
from xlarank.models.objectives import mean_rank
from xlarank.models.validation.metrics import summary
from xlarank.pipelines.ranking.model_choice import choose_for_collection
from xlarank.pipelines.ranking.score_difference import Explanation, explain_graph
from xlarank.pipelines.reporting import charts
from xlarank.pipelines.support import baselines, evaluation, verdicts
from xlarank.pipelines.support.progress import steps_of
from xlarank.pipelines.support.workspaces import chosen_collections

#: A table row: cell by column heading.
Row = dict[str, Any]

#: The evaluated split; graphs that the ranker knows are left out.
SPLIT: Final = "valid"
_METRICS: Final = ("slowdown@1", "slowdown@5")
#: Number of rows of tables of copies and of columns.
_TOP: Final = 12


@dataclass
class CollectionFacts:
    """What the report shows of a collection.

    Attributes:
        ranker: what `rank` and `submit` use.
        ranked_by: its name, and why it ranks.
        held_out: how the graphs were held out, if scores are out of fold; else empty.
        reason: why there are no scores; empty if there are.
        rankings: metrics of ``ranker``, of the trained model if it is another, and of rules.
        left_out: valid graphs without a score, and why.
        ranks: graph -> ``(configs,)`` ranks by ``ranker`` and by label, from 0 (fastest) to 1;
            empty if scores are out of fold.
        explained: the worst graph's first configuration against its fastest; None if they are the
            same or the file is gone.
    """

    collection: Collection
    ranker: Model | None = None
    ranked_by: str = ""
    held_out: str = ""
    reason: str = ""
    rankings: baselines.Rankings = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    ranks: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)
    explained: Explanation | None = None

    @property
    def name(self) -> str:
        return str(self.collection)

    @property
    def ranking(self) -> str:
        """Name of the first ranking: of what ranks, if it scores these graphs."""
        return next(iter(self.rankings))

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Metrics of the first ranking, ``{graph: {metric: value}}``."""
        return next(iter(self.rankings.values()), {})

    @property
    def sentence(self) -> str:
        """Mean score with its interval, metric, ranker and graphs."""
        scores = {graph: values["score"] for graph, values in self.metrics.items()}
        mean = verdicts.with_interval(summary(scores))
        graphs = counted(len(scores), "graph")
        where = f"out of fold, {self.held_out} held out" if self.held_out else f"{SPLIT} split"
        return f"{verdicts.score_name(self.name)} {mean} by {self.ranking} on {graphs}, {where}"

    def worst_first(self) -> list[str]:
        return sorted(self.metrics, key=lambda name: (self.metrics[name]["score"], name))

    def board(self) -> list[Row]:
        """Return a row per ranker and rule, as `evaluate` prints them."""
        rows = evaluation.compared(self.rankings)
        return verdicts.comparison_cells(rows, verdicts.score_name(self.name))

    def graph_rows(self) -> list[Row]:
        """Return a row per graph with the metrics of what ranks, the worst first."""
        ceilings = evaluation.ceilings_of(self.metrics)
        rows = []
        for name in self.worst_first():
            metrics = self.metrics[name]
            row: Row = {"graph": name, verdicts.score_name(self.name): metrics["score"]}
            row |= {metric: metrics[metric] for metric in _METRICS}
            if ceilings:
                row["ceiling of tau"] = ceilings.get(name)
            rows.append(row)
        return rows

    def column_rows(self) -> list[Row]:
        """Return the columns that the ranker uses, the most important first."""
        if self.ranker is None:
            return []
        rule = self.ranker.rule
        shares = dict.fromkeys(rule.columns) if rule else self.ranker.importance()
        rows: list[Row] = []
        for name, share in [*shares.items()][:_TOP]:
            row: Row = {"column": name} if rule else {"column": name, "share of the gain": share}
            rows.append(row | {"meaning": meaning_of(name)})
        return rows

    def copy_rows(self) -> list[Row]:
        """Return the copies that only one of the explained configurations needs."""
        rows: list[Row] = []
        if worst := self.explained:
            configs = (worst.configuration, worst.copies), (worst.against, worst.copies_against)
            for config, copies in configs:
                for copy in copies[: _TOP // 2]:
                    row = {"needed by": f"configuration {config}", "output of node": copy.node}
                    row |= {"layout": copy.orders, "µs": copy.nanoseconds / 1e3}
                    rows.append(row)
        return rows

    def node_rows(self) -> list[Row]:
        """Return the nodes whose estimated times differ, the largest first."""
        rows = []
        for node in self.explained.nodes[:_TOP] if self.explained else ():
            row: Row = {"node": node.node, "operation": f"{node.opcode} {node.shape}"}
            row |= {"layouts": node.layouts, "layouts of the fastest": node.layouts_against}
            rows.append(row | {"µs": node.nanoseconds / 1e3})
        return rows

    def rank_charts(self) -> list[str]:
        """Draw predicted against measured ranks of the best, the median and the worst graph."""
        if not self.ranks:
            return []
        names = self.worst_first()
        metric = verdicts.score_name(self.name)
        shown = {names[0]: "worst", names[len(names) // 2]: "median", names[-1]: "best"}
        pictures = []
        for name, position in reversed(shown.items()):
            shown_name = name if len(name) <= 26 else f"…{name[-25:]}"
            title = f"{position}: {shown_name}\n{metric} {self.metrics[name]['score']:.3f}"
            chart = charts.ranks_chart(title, *self.ranks[name])
            pictures.append(chart)
        return pictures

    def cause_chart(self) -> str:
        """Draw the share of the gain by physical cause; empty for a rule."""
        if self.ranker is None or self.ranker.rule is not None:
            return ""
        importance = self.ranker.importance().items()
        shares = sum_by_key({cause_of(name).value: share} for name, share in importance)
        return charts.bars_chart(shares, xlabel="share of the gain")


def report(
    workspace: Workspace, out: Path, *, collections: Sequence[str] = ()
) -> list[CollectionFacts]:
    """Write the report of a workspace to ``out``, one self-contained page; return what it shows.

    Rankers are scored anew on the valid split; trained ones have their out-of-fold scores if there
    is none. Raises `CollectionError` if the workspace has no stored features.
    """
    chosen = chosen_collections(workspace, collections)
    all_facts = []
    with steps_of("reporting", len(chosen)) as step:
        for collection in chosen:
            all_facts.append(gather(workspace, collection))
            step(str(collection))
    page = _page(workspace, all_facts).encode("utf-8", "backslashreplace")  # names of files
    with atomic_write(out) as partial:
        partial.write_bytes(page)
    return all_facts


def gather(workspace: Workspace, collection: Collection) -> CollectionFacts:
    """Evaluate what ranks a collection, and return what the report shows; write nothing."""
    facts = CollectionFacts(collection)
    manifests = read_manifests(workspace, collection)
    try:
        choice = choose_for_collection(workspace, collection)
        facts.ranker = choice.model
        facts.ranked_by = choice.reason.replace(str(workspace.root), workspace.root.name)
        if SPLIT in manifests:
            models = dict.fromkeys([choice.model, choice.trained or choice.model])
            _score(workspace, facts, [*models], manifests[SPLIT])
        if not facts.metrics and choice.trained is not None:
            card = choice.trained.require_card()
            scored = evaluation.out_of_fold(workspace, collection, card)
            facts.rankings = evaluation.first_of(scored, choice.model.name)
            facts.held_out = FOLDS_OF[card.folds_by]
            facts.left_out.clear()
        if facts.ranks:
            facts.explained = _explain_worst(facts, manifests[SPLIT])
        if not facts.metrics:
            facts.reason = f"it has no labelled graph in {SPLIT} that the ranker does not know"
    except XlarankError as error:
        facts.reason = str(error)
    return facts


def _score(
    workspace: Workspace, facts: CollectionFacts, models: Sequence[Model], manifest: Manifest
) -> None:
    """Add metrics of valid graphs that no model knows, and their ranks by the first model."""
    known = dict[str, str]()
    for model in models:
        model.require(manifest)
        names = model.require_card().known_graphs
        known |= dict.fromkeys(names, "in the training set of the model")
    for rows in evaluation.graphs_to_score(
        workspace, facts.collection, SPLIT, manifest, facts.left_out, known
    ):
        for model in models:
            scores = model.score(rows)
            evaluation.add_metrics(facts.rankings, facts.collection, rows, model.name, scores)
        predicted = models[0].score(rows)[rows.group]
        facts.ranks[rows.name] = mean_rank(predicted), mean_rank(rows.cost)


def _explain_worst(facts: CollectionFacts, manifest: Manifest) -> Explanation | None:
    """Explain why the fastest configuration of the worst graph is not the first."""
    name = facts.worst_first()[0]
    predicted, measured = facts.ranks[name]
    assert facts.ranker is not None
    with suppress(XlarankError):  # the graph's file cannot be read
        npz = find_data_root(Path(manifest.data_root)).npz
        path = npz.joinpath(*facts.collection.parts, SPLIT, f"{name}.npz")
        graph = read_graph(path, facts.collection.kind)
        if len(measured) == graph.configs and predicted[measured.argmin()] > predicted.min():
            fastest = int(measured.argmin())
            hardware = facts.collection.hardware
            return explain_graph(graph, facts.ranker, hardware, against=fastest)
    return None


def _page(workspace: Workspace, all_facts: Sequence[CollectionFacts]) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(charts.__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = _cell
    scored = [facts for facts in all_facts if facts.metrics]
    metrics: Mapping[str, baselines.Metrics] = {facts.name: facts.metrics for facts in scored}
    return environment.get_template("report.html.jinja").render(
        workspace=workspace.root.name,
        version=xlarank.__version__,
        scored=scored,
        unscored={facts.name: facts.reason for facts in all_facts if not facts.metrics},
        overall=verdicts.mean_over_collections(metrics),
        counted=counted,
        score_name=verdicts.score_name,
    )


def _cell(value: object) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:,.3f}".replace("-0.000", "0.000")
    return "-" if value is None else str(value)
