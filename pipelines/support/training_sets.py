"""What the workspace holds: collections with rows or models, and rows for learning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xlarank.data.collection import Collection, choose
from xlarank.data.errors import CollectionError
from xlarank.data.workspace import Workspace
from xlarank.features.rows import GraphRows
from xlarank.features.store import Manifest, Recipe, each_graph, read_manifest, stored_collections
from xlarank.models.ranking_data import RankingData
from xlarank.models.sampling import draw_of_graph, sample_configs
from xlarank.models.trained import CARD


@dataclass(frozen=True)
class TrainingSet:
    """Graphs of a collection that can be learned from, as rows and as groups (in the same order)."""

    collection: Collection
    manifest: Manifest
    graphs: list[GraphRows]
    data: RankingData


def chosen_collections(workspace: Workspace, asked: Sequence[str]) -> list[Collection]:
    """Collections with stored features; raises `CollectionError` for others."""
    return choose(asked, stored_collections(workspace), where=f"the workspace {workspace.root}")


def trained_collections(workspace: Workspace) -> list[Collection]:
    """Collections that have a model in the workspace, sorted."""
    root = workspace.root / "models"
    return sorted(Collection(path.relative_to(root).parts[:-1]) for path in root.glob(f"*/**/{CARD}"))


def training_set(workspace: Workspace, collection: Collection, splits: Sequence[str] = ("train",)) -> TrainingSet:
    """The labelled, rankable graphs of some splits.

    Where the first split was built with at most so many configurations of each graph, the others, which are stored
    whole, give no more: a few validation graphs of 100,000 rows would outweigh, and outgrow, all the rest.

    Raises `CollectionError` when the first split was not built or nothing in it can be learned from.
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
    found, usable = 0, []
    for split in splits:
        for graph in each_graph(workspace, collection, split):
            found += 1
            if graph.labelled and graph.rankable:
                usable.append(_at_most(graph, manifest.recipe))
    if not usable:
        raise CollectionError(
            f"{collection} has {found} graphs in {' and '.join(splits)}, none of which can be learned from",
            expected="a graph with measured runtimes and two configurations that differ",
            do=f"leave {collection} out",
        )
    return TrainingSet(collection, manifest, usable, RankingData.from_graphs(usable))


def _at_most(graph: GraphRows, recipe: Recipe) -> GraphRows:
    """A graph with no more rows than the recipe keeps, drawn as `build_features` draws them."""
    if not recipe.max_configs or len(graph) <= recipe.max_configs:
        return graph
    rng = draw_of_graph(recipe.seed, graph.name)
    kept = graph.take(sample_configs(graph.row_cost, recipe.max_configs, rng, recipe.sampling))
    return kept if kept.rankable else graph
