"""The training set of a collection, read from the workspace."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, FeatureStoreError, ModelError, counted
from xlarank.data.graph import Kind
from xlarank.data.workspace import Workspace
from xlarank.features.recipe import Recipe
from xlarank.features.rows import GraphRows, at_most
from xlarank.features.store import Manifest, each_graph, read_manifest
from xlarank.features.targets import target_of
from xlarank.models.trained import TrainedModel
from xlarank.models.training_data import TrainingData
from xlarank.pipelines.support.processes import machine_memory

#: Bytes of a stored value.
_VALUE: Final = 4


@dataclass(frozen=True, eq=False)
class StoredTrainingSet:
    """Training data from the workspace.

    Attributes:
        data: its query groups, and those of other collections.
        splits: split -> names of its graphs, in the order of the groups.
        manifest: of the first split.
        manifests: of all splits that were read, those of other collections too.
        also_from: other collections that are trained on -> names of their graphs.
        also_weights: their weights; the collection itself has 1.
    """

    data: TrainingData
    collection: Collection
    splits: dict[str, list[str]]
    manifest: Manifest
    manifests: dict[tuple[Collection, str], Manifest] = field(default_factory=dict)
    also_from: dict[str, list[str]] = field(default_factory=dict)
    also_weights: dict[str, float] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        return self.collection.kind

    def require_current(self, workspace: Workspace) -> None:
        """Raise `FeatureStoreError` where the rows were removed or replaced since they were read."""
        for (collection, split), read in self.manifests.items():
            now = read_manifest(workspace, collection, split)
            if now is None or now.recipe != read.recipe or not read.graphs.items() <= now.graphs.items():
                raise FeatureStoreError(
                    f"the {split} rows of {collection} were replaced while they were trained on",
                    do="run the same command again",
                )


def also_learn_from(
    training: StoredTrainingSet, workspace: Workspace, others: Mapping[Collection, float]
) -> StoredTrainingSet:
    """Add the same splits of other collections of its kind to a training set; the collection itself is skipped.

    ``others`` -> weight of each of its graphs, where those of the collection itself have 1.

    Raises `CollectionError` for a collection of the other kind, one that nothing can be trained on, and one that
    was built by other feature code.
    """
    others = {other: weight for other, weight in others.items() if other != training.collection}
    also: TrainingData | None = None
    names: dict[str, list[str]] = {}
    manifests = dict(training.manifests)
    for other, weight in others.items():
        if other.kind != training.kind:
            raise CollectionError(
                f"{training.collection} cannot also be trained on {other}",
                expected=f"a {training.kind} collection",
                do="choose the collections to train with --collection",
            )
        extra = read_training_set(workspace, other, [*training.splits])
        if extra.manifest.recipe.code_hash != training.manifest.recipe.code_hash:
            raise CollectionError(
                f"{other} and {training.collection} were built by different feature code or settings",
                do="run build-features again for both",
            )
        data = extra.data if weight == 1 else extra.data.weighted(weight)
        also = data if also is None else also.join(data)
        names[str(other)] = extra.data.names
        manifests |= extra.manifests
    return replace(
        training,
        data=replace(training.data, also=also),
        manifests=manifests,
        also_from=names,
        also_weights={str(other): weight for other, weight in others.items()},
    )


def read_training_set(
    workspace: Workspace, collection: Collection, splits: Sequence[str] = ("train",)
) -> StoredTrainingSet:
    """The labelled, rankable graphs of some splits.

    Where the first split was built with at most so many configurations of each graph, the others, which are stored
    whole, give no more: a few validation graphs of 100,000 rows would outweigh, and outgrow, all the rest.

    Raises `CollectionError` when the first split was not built, nothing in it can be trained on, or the rows do
    not fit into memory.
    """
    manifests = [read_manifest(workspace, collection, split) for split in splits]
    manifest = manifests[0]
    if manifest is None or not manifest.graphs:
        raise CollectionError(
            f"{collection} has no {splits[0]} split in {workspace.root}",
            expected="stored features of labelled graphs",
            do=f"run build-features with a data root that holds it, or leave {collection} out",
        )
    for other in manifests[1:]:
        if other is not None and other.recipe.code_hash != manifest.recipe.code_hash:
            raise CollectionError(
                f"the splits of {collection} were built by different feature code or settings",
                do="run build-features again for all splits",
            )
    _require_memory(collection, manifest.recipe, [one for one in manifests if one is not None])
    graphs, names = 0, {split: list[str]() for split in splits}
    usable: list[GraphRows] = []
    read = {split: one for split, one in zip(splits, manifests, strict=True) if one is not None}
    for split, of_split in read.items():
        for graph in each_graph(workspace, collection, split, of_split):
            graphs += 1
            if graph.labelled and graph.rankable:
                if usable and graph.columns == usable[0].columns:  # one list of names, of a hundred bytes each
                    graph = replace(graph, columns=usable[0].columns)
                usable.append(_at_most(graph.measured(), manifest.recipe))
                names[split].append(graph.name)
    if not usable:
        raise CollectionError(
            f"{collection} has {counted(graphs, 'graph')} in {' and '.join(splits)}, none of which can be trained "
            "on",
            expected="a graph with measured runtimes and two configurations that differ",
            do=f"leave {collection} out",
        )
    data = TrainingData.from_graphs(usable, target_of(collection))
    manifests_read = {(collection, split): one for split, one in read.items()}
    return StoredTrainingSet(data, collection, names, manifest, manifests_read)


def learned_by(workspace: Workspace, collection: Collection, model: TrainedModel) -> StoredTrainingSet:
    """Return the training set of a model, with the graphs of other collections that it was trained on.

    Raises `ModelError` where they were replaced, or built with other settings.
    """
    card = model.card
    training = read_training_set(workspace, collection, [*card.trained_on])
    model.require_rows_of(training.manifest)
    others = {Collection.parse(name): card.also_weights.get(name, 1.0) for name in card.also_from}
    training = also_learn_from(training, workspace, others)
    if training.splits != card.trained_on or training.also_from != card.also_from:
        raise ModelError(
            f"the rows of {collection} are of other graphs than its model was trained on", do="train again"
        )
    return training


def _at_most(graph: GraphRows, recipe: Recipe) -> GraphRows:
    """A graph with no more rows than the recipe keeps, unless these could not be ranked."""
    kept = at_most(graph, recipe)
    return kept if kept.rankable else graph


def _require_memory(collection: Collection, recipe: Recipe, manifests: Sequence[Manifest]) -> None:
    """Raise `CollectionError` where the rows of some splits take more memory than there is."""
    most = recipe.max_configs or sys.maxsize
    rows = sum(min(int(about["rows"]), most) for one in manifests for about in one.graphs.values())
    size, memory = _VALUE * rows * len(manifests[0].config_columns), machine_memory()
    if size > memory:
        raise CollectionError(
            f"the {rows} rows of {collection} take {1e-9 * size:.3g} GB",
            expected=f"no more than the {1e-9 * memory:.3g} GB of memory",
            do="run build-features with --max-configs, or with fewer",
        )
