"""Training set of a collection, read from the workspace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, FeatureStoreError, ModelError
from xlarank.data.graph import Kind
from xlarank.data.workspace import Workspace
from xlarank.features.rows import GraphRows, random_rows
from xlarank.features.store import Manifest, each_graph, read_manifest, read_manifests
from xlarank.models.card import ModelCard
from xlarank.models.model import Model
from xlarank.models.training_data import TrainingData, target_of
from xlarank.models.validation.folds import FoldPlan

#: Minimum number of configurations per graph; with fewer, a model ranks no better than the default
#: order.
MIN_CONFIGS: Final = 16
#: Maximum training rows of a collection, by default; more configurations of a graph hardly raise
#: the score (docs/explanation/tuning.md).
MAX_ROWS: Final[dict[Kind, int]] = {"layout": 100_000, "tile": 500_000}
#: Minimum number of graphs in a sample.
_MIN_GRAPHS: Final = 100


@dataclass(frozen=True, eq=False)
class StoredTrainingSet:
    """Training data from the workspace.

    Attributes:
        splits: names of the graphs by split, in the order of the groups.
        also_from: names of the graphs by extra collection.
        max_rows: limit that the rows of each collection were sampled to; 0: none.
    """

    data: TrainingData
    collection: Collection
    splits: dict[str, list[str]]
    manifests: dict[Collection, dict[str, Manifest]]
    also_from: dict[str, list[str]]
    max_rows: int

    @cached_property
    def plan(self) -> FoldPlan:
        """Folds of the collection's own graphs."""
        return FoldPlan.of(self.data)

    @property
    def manifest(self) -> Manifest:
        """Manifest of the first split."""
        return next(iter(self.manifests[self.collection].values()))

    def card(
        self, rounds: int, folds: dict[str, dict[str, float]], *, tuned: bool, select: str
    ) -> ModelCard:
        """Return the card of a model with its number of rounds and its metrics out of fold."""
        data = self.data.training_groups()
        # only kernels whose family is certain; none for layouts
        certain = {part.kernel_families[0] for part in data.parts if len(part.kernel_families) == 1}
        return ModelCard(
            collection=str(self.collection),
            rounds=rounds,
            tuned=tuned,
            recipe=self.manifest.recipe,
            trained_on=self.splits,
            also_from=self.also_from,
            folds=folds,
            folds_by=self.plan.by,
            target=self.collection.hardware,
            kernel_families=sorted(certain),
            fallback=self.plan.fallback,
            select=select,
            rows=len(data.cost),
            max_rows=self.max_rows,
        )

    def sampled(self, rows: int) -> TrainingData:
        """Return about ``rows`` random rows, `MIN_CONFIGS` or more of each graph."""
        data = self.data
        if len(data.cost) <= rows:
            return data
        sizes = np.diff(data.indptr)
        order = np.random.default_rng(0).permutation(data.groups)
        least = np.minimum(sizes, MIN_CONFIGS)[order].cumsum()
        enough = max(_MIN_GRAPHS, int(np.searchsorted(least, rows, side="right")))
        kept = np.sort(order[:enough])
        limit = max(2, even_limit(sizes[kept].tolist(), rows))
        parts = [_sample(data.parts[group], limit) for group in kept]
        return TrainingData.from_graphs(parts, data.target)

    def require_current(self, workspace: Workspace) -> None:
        """Raise `FeatureStoreError` if the rows were removed or replaced since they were read."""
        for collection, manifests in self.manifests.items():
            for split, old in manifests.items():
                new = read_manifest(workspace, collection, split)
                if (
                    new is None
                    or new.recipe != old.recipe
                    or not old.graphs.items() <= new.graphs.items()
                ):
                    rows = f"the {split} rows of {collection}"
                    got = f"{rows} were replaced while they were trained on"
                    raise FeatureStoreError(got, do="run the same command again")


def even_limit(sizes: Sequence[int], total: int) -> int:
    """Return the most rows per graph with which graphs of ``sizes`` have at most ``total``.

    >>> even_limit([10, 50, 90], 150), even_limit([10, 50, 90], 70), even_limit([10, 50, 90], 25)
    (90, 30, 8)
    """
    left = total
    for number, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - number)
        if share < size:
            return share
        left -= size
    return max(sizes)


def training_sizes(manifests: Sequence[Manifest], max_rows: int) -> dict[str, int]:
    """Return the number of training rows of each labelled graph.

    Graphs of later splits have at most as many rows as graphs of the first split, and `even_limit`
    for ``max_rows`` in total (0: all), but `MIN_CONFIGS` or more.
    """
    graphs: dict[str, int] = {}
    for manifest in manifests:
        for name, graph in manifest.graphs.items():
            if graph.labelled:
                graphs[name] = min(graph.rows, manifests[0].recipe.max_configs or graph.rows)
    if not max_rows or sum(graphs.values()) <= max_rows:
        return graphs
    limit = max(MIN_CONFIGS, even_limit([*graphs.values()], max_rows))
    return {name: min(rows, limit) for name, rows in graphs.items()}


def read_training_set(
    workspace: Workspace,
    collection: Collection,
    splits: Sequence[str] = ("train",),
    extra: Sequence[Collection] = (),
    max_rows: int | None = None,
) -> StoredTrainingSet:
    """Return the labelled, rankable graphs of splits, with those of ``extra`` collections.

    Graphs are sampled to the sizes of `training_sizes`: the maximum number of configurations that
    the first split was built with also limits the graphs of the other splits, which are stored
    completely (otherwise a few validation graphs of 100,000 rows would dominate), and each
    collection has at most about ``max_rows`` rows.

    Raises `CollectionError` for a lack of rows and for collections of both kinds.
    """
    others = [other for other in extra if other != collection]
    for other in others:
        if other.kind != collection.kind:
            expected = f"a {collection.kind} collection"
            do = "choose the collections to train with `collection`"
            got = f"{collection} cannot also be trained on {other}"
            raise CollectionError(got, expected=expected, do=do)
    manifests = {
        member: _read_manifests(workspace, member, splits) for member in (collection, *others)
    }
    limit = MAX_ROWS[collection.kind] if max_rows is None else max_rows
    data, names = _read_graphs(workspace, collection, manifests[collection], limit)
    also: list[GraphRows] = []
    also_from = dict[str, list[str]]()
    for other in others:
        groups, _ = _read_graphs(workspace, other, manifests[other], limit)
        also_from[str(other)] = groups.names
        also += groups.parts
    data = replace(data, also=also)
    return StoredTrainingSet(data, collection, names, manifests, also_from, limit)


def _read_manifests(
    workspace: Workspace, collection: Collection, splits: Sequence[str]
) -> dict[str, Manifest]:
    manifests = read_manifests(workspace, collection, splits)
    if splits[0] not in manifests or not manifests[splits[0]].graphs:
        got = f"{collection} has no graphs in the {splits[0]} split of {workspace.root}"
        raise CollectionError(got, do="rank and submit rank it without training")
    return manifests


def _read_graphs(
    workspace: Workspace, collection: Collection, manifests: dict[str, Manifest], max_rows: int
) -> tuple[TrainingData, dict[str, list[str]]]:
    """Return the query groups and the names of their graphs by split."""
    names = {split: list[str]() for split in manifests}
    graphs = []
    for split, graph in _sampled_graphs(workspace, collection, manifests, max_rows):
        graphs.append(graph)
        names[split].append(graph.name)
    if not graphs:
        got = f"{collection} has no graph in {' and '.join(manifests)} that can be trained on"
        expected = "a graph with measured runtimes and two configurations that differ"
        raise CollectionError(got, expected=expected, do=f"leave {collection} out")
    return TrainingData(graphs, target_of(collection.hardware)), names


def _sampled_graphs(
    workspace: Workspace, collection: Collection, manifests: Mapping[str, Manifest], max_rows: int
) -> Iterator[tuple[str, GraphRows]]:
    """Yield the split and the rows, sampled to `training_sizes`, of each graph to train on."""
    sizes = training_sizes([*manifests.values()], max_rows)
    for split, manifest in manifests.items():
        for graph in each_graph(workspace, collection, split, manifest):
            if not graph.unusable:
                yield split, _sample(graph.measured(), sizes[graph.name])


def _sample(graph: GraphRows, rows: int) -> GraphRows:
    """Return `random_rows`; all rows if these cannot be ranked."""
    if len(graph) <= rows:
        return graph
    sample = random_rows(graph, rows)
    return sample if sample.rankable else graph


def training_rows(
    workspace: Workspace, collection: Collection, card: ModelCard
) -> Iterator[GraphRows]:
    """Yield the rows of the graphs of a collection that its model was trained on."""
    manifests = read_manifests(workspace, collection, [*card.trained_on])
    if not manifests:
        return
    for split, graph in _sampled_graphs(workspace, collection, manifests, card.max_rows):
        if graph.name in card.trained_on[split]:
            yield graph


def training_set_of(
    workspace: Workspace, collection: Collection, model: Model
) -> StoredTrainingSet:
    """Return a model's training set; raises `ModelError` if its graphs or code changed."""
    card = model.require_card()
    extra = [Collection.parse(name) for name in card.also_from]
    splits = [*card.trained_on]
    training = read_training_set(workspace, collection, splits, extra, max_rows=card.max_rows)
    model.require(training.manifest)
    if training.splits != card.trained_on or training.also_from != card.also_from:
        got = f"the rows of {collection} are of other graphs than its model was trained on"
        raise ModelError(got, do="train again")
    return training
