"""The training set of a collection, read from the workspace."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, FeatureStoreError, ModelError, counted
from xlarank.data.graph import Kind
from xlarank.data.workspace import Workspace
from xlarank.features.rows import GraphRows, at_most
from xlarank.features.store import Manifest, each_graph, read_manifest
from xlarank.features.targets import target_of
from xlarank.models.trained import TrainedModel
from xlarank.models.training_data import TrainingData
from xlarank.pipelines.support.processes import machine_memory

#: Bytes of a stored value.
_VALUE: Final = 4
#: Split -> what is stored of it.
Manifests = dict[str, Manifest]


@dataclass(frozen=True, eq=False)
class StoredTrainingSet:
    """Training data from the workspace.

    Attributes:
        data: its query groups, and those of other collections.
        splits: split -> names of its graphs, in the order of the groups.
        manifests: of all splits that were read, those of other collections too.
        also_from: other collections that are trained on -> names of their graphs.
        also_weights: their weights; the collection itself has 1.
    """

    data: TrainingData
    collection: Collection
    splits: dict[str, list[str]]
    manifests: dict[Collection, Manifests]
    also_from: dict[str, list[str]]
    also_weights: dict[str, float]

    @property
    def kind(self) -> Kind:
        return self.collection.kind

    @property
    def manifest(self) -> Manifest:
        """Of the first split."""
        return next(iter(self.manifests[self.collection].values()))

    def require_current(self, workspace: Workspace) -> None:
        """Raise `FeatureStoreError` where the rows were removed or replaced since they were read."""
        for collection, manifests in self.manifests.items():
            for split, read in manifests.items():
                now = read_manifest(workspace, collection, split)
                if now is None or now.recipe != read.recipe or not read.graphs.items() <= now.graphs.items():
                    raise FeatureStoreError(
                        f"the {split} rows of {collection} were replaced while they were trained on",
                        do="run the same command again",
                    )


def read_training_set(
    workspace: Workspace,
    collection: Collection,
    splits: Sequence[str] = ("train",),
    others: Mapping[Collection, float] | None = None,
) -> StoredTrainingSet:
    """The labelled, rankable graphs of some splits, with those of ``others`` to train on but not to score.

    ``others`` are collections of the same kind -> weight of each of their graphs, where those of the collection
    itself have 1; the collection itself is skipped.
    Where the first split was built with at most so many configurations of each graph, the others, which are stored
    whole, give no more: a few validation graphs of 100,000 rows would outweigh, and outgrow, all the rest.

    Raises `CollectionError` when the first split was not built, nothing in it can be trained on, the rows do not
    fit into memory or were made by different feature code.
    """
    weights = {other: weight for other, weight in (others or {}).items() if other != collection}
    for other in weights:
        if other.kind != collection.kind:
            raise CollectionError(
                f"{collection} cannot also be trained on {other}",
                expected=f"a {collection.kind} collection",
                do="choose the collections to train with --collection",
            )
    manifests = {each: _read_manifests(workspace, each, splits) for each in (collection, *weights)}
    if len({one.recipe.code_hash for each in manifests.values() for one in each.values()}) > 1:
        raise CollectionError(
            f"the rows of {' and '.join(map(str, manifests))} were built by different feature code or settings",
            do="run build-features again for all of their splits",
        )
    data, names = _read_graphs(workspace, collection, splits, manifests[collection])
    also, also_from = None, dict[str, list[str]]()
    for other, weight in weights.items():
        extra, _ = _read_graphs(workspace, other, splits, manifests[other])
        also_from[str(other)] = extra.names
        extra = extra if weight == 1 else extra.weighted(weight)
        also = extra if also is None else also.join(extra)
    also_weights = {str(other): weight for other, weight in weights.items()}
    return StoredTrainingSet(replace(data, also=also), collection, names, manifests, also_from, also_weights)


def _read_manifests(workspace: Workspace, collection: Collection, splits: Sequence[str]) -> Manifests:
    found = {split: read_manifest(workspace, collection, split) for split in splits}
    manifests = {split: manifest for split, manifest in found.items() if manifest is not None}
    first = manifests.get(splits[0])
    if first is not None and first.broken and not first.graphs:
        raise CollectionError(
            f"{collection} has no {splits[0]} graph that can be read: {next(iter(first.broken.values()))}",
            do=f"mend its {counted(len(first.broken), 'broken file')} and run build-features again",
        )
    if first is None or not first.graphs:
        raise CollectionError(
            f"{collection} has no {splits[0]} split in {workspace.root}",
            expected="stored features of labelled graphs",
            do=f"run build-features with a data root that holds it, or leave {collection} out",
        )
    return manifests


def _read_graphs(
    workspace: Workspace, collection: Collection, splits: Sequence[str], manifests: Manifests
) -> tuple[TrainingData, dict[str, list[str]]]:
    """Query groups, and split -> names of its graphs."""
    recipe = manifests[splits[0]].recipe
    most = recipe.max_configs or sys.maxsize
    rows = sum(min(graph.rows, most) for manifest in manifests.values() for graph in manifest.graphs.values())
    size, memory = _VALUE * rows * len(manifests[splits[0]].config_columns), machine_memory()
    if size > memory:
        raise CollectionError(
            f"the {rows} rows of {collection} take {1e-9 * size:.3g} GB",
            expected=f"no more than the {1e-9 * memory:.3g} GB of memory",
            do="run build-features with --max-configs, or with fewer",
        )
    graphs, names = 0, {split: list[str]() for split in splits}
    usable: list[GraphRows] = []
    for split, manifest in manifests.items():
        for graph in each_graph(workspace, collection, split, manifest):
            graphs += 1
            if graph.labelled and graph.rankable:
                if usable and graph.columns == usable[0].columns:  # one list of names, of a hundred bytes each
                    graph = replace(graph, columns=usable[0].columns)
                kept = at_most(graph.measured(), recipe)
                usable.append(kept if kept.rankable else graph.measured())
                names[split].append(graph.name)
    if not usable:
        raise CollectionError(
            f"{collection} has {counted(graphs, 'graph')} in {' and '.join(splits)}, none of which can be trained "
            "on",
            expected="a graph with measured runtimes and two configurations that differ",
            do=f"leave {collection} out",
        )
    return TrainingData.from_graphs(usable, target_of(collection)), names


def learned_by(workspace: Workspace, collection: Collection, model: TrainedModel) -> StoredTrainingSet:
    """Return the training set of a model, with the graphs of other collections that it was trained on.

    Raises `ModelError` where they were replaced, or built with other settings.
    """
    card = model.card
    others = {Collection.parse(name): card.also_weights.get(name, 1.0) for name in card.also_from}
    training = read_training_set(workspace, collection, [*card.trained_on], others)
    model.require(training.manifest)
    if training.splits != card.trained_on or training.also_from != card.also_from:
        raise ModelError(
            f"the rows of {collection} are of other graphs than its model was trained on", do="train again"
        )
    return training
