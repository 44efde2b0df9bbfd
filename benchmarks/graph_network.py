"""A graph network on the graphs, rows and folds of the trees: a table of `benchmarks.results`.

Four residual GraphSAGE layers of width 96 learn from pairs of configurations of one graph. Nothing
is chosen by held-out graphs: the last of 25 epochs ranks. An epoch passes once over all rows of the
training graphs: whole graphs with up to 32 random rows each, four to a step.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.pretrain import labelled_rows
from benchmarks.results.stored import PEER, Cell, Table
from benchmarks.results.tables import Job
from xlarank.data.collection import Collection, graph_files
from xlarank.data.graph import LayoutGraph, TileGraph, read_graph
from xlarank.data.schema import MAX_RANK, OPCODES
from xlarank.features.rows import GraphRows
from xlarank.models.card import blend_default
from xlarank.models.model import Model
from xlarank.models.training_data import FitSettings, TrainingData, target_of
from xlarank.models.validation.folds import Fold, FoldPlan
from xlarank.models.validation.metrics import graph_metrics, paired_difference, summary

MEASURED = ("layout:cpu:default", "layout:cpu:random", "layout:nvidia-h200:random", "tile:cpu")
ROUNDS = 300
WIDTH = 96
LAYERS = 4
EPOCHS = 25
ROWS = 32
GRAPHS_PER_STEP = 4
LEARNING_RATE = 1e-3
SEEDS = (0, 1, 2)
#: With fewer training graphs, folds of both labelled splits are compared, too.
FEW_GRAPHS = 10


@dataclass(frozen=True)
class Inputs:
    """Tensors of a graph.

    Attributes:
        features, opcode: ``(nodes, 140)`` signed logarithms, ``(nodes,)``.
        neighbour_means: ``(2 nodes, nodes)`` weights of operands, then of consumers.
        configurable: ``(k,)`` nodes that a configuration is joined to: of tiles all.
        choices: ``(choices, width)`` rows of layouts, one-hot, or tile configurations.
        codes: ``(rows, k)`` choice of each node in each configuration.
        cost: ``(rows,)``
    """

    features: Tensor
    opcode: Tensor
    neighbour_means: Tensor
    configurable: Tensor
    choices: Tensor
    codes: Tensor
    cost: Tensor

    @classmethod
    def of(cls, graph: LayoutGraph | TileGraph, rows: GraphRows) -> Inputs:
        """Return the tensors of a graph, with the configurations of ``rows`` in their order."""
        configs = rows.ids[np.unique(rows.group, return_index=True)[1]]
        if isinstance(graph, LayoutGraph):
            configurable = graph.configurable
            entries = torch.tensor(graph.table.rows, dtype=torch.long) + 1  # -1: unset
            choices = functional.one_hot(entries, MAX_RANK + 1).flatten(1).float()
            codes = graph.table.codes[configs]
        else:
            configurable = np.arange(graph.nodes)
            choices = torch.tensor(signed_log(graph.config_feat[configs]))
            codes = np.repeat(np.arange(len(configs))[:, None], graph.nodes, axis=1)
        return cls(
            torch.tensor(signed_log(graph.node_feat)),
            torch.tensor(graph.opcode),
            _neighbour_means(graph),
            torch.tensor(configurable),
            choices,
            torch.tensor(codes, dtype=torch.long),
            torch.tensor(rows.row_cost),
        )


def signed_log(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.sign(values) * np.log1p(np.abs(values))


def _neighbour_means(graph: LayoutGraph | TileGraph) -> Tensor:
    """Return the matrix that takes means over the operands, then over the consumers of nodes."""
    edges = np.concatenate([graph.edges, graph.edges[:, ::-1] + [graph.nodes, 0]])
    weights = 1 / np.bincount(edges[:, 0])[edges[:, 0]].astype(np.float32)
    places = torch.tensor(edges.T)
    shape = (2 * graph.nodes, graph.nodes)
    return torch.sparse_coo_tensor(places, weights, shape, check_invariants=True).coalesce()


class GraphSage(nn.Module):
    """Ranker of the configurations of a graph; a lower score is faster.

    Columns that are constant over the training graphs are left out, and an opcode that is not among
    them is all zeros: their weights would stay as they were drawn.
    """

    def __init__(self, graphs: Sequence[Inputs]) -> None:
        super().__init__()
        self.features = _varying([graph.features for graph in graphs])
        self.choices = _varying([graph.choices for graph in graphs])
        self.opcode = nn.Embedding(len(OPCODES), 32)
        nn.init.zeros_(self.opcode.weight)
        self.node = nn.Linear(len(self.features) + 32, WIDTH)
        self.choice = nn.Linear(len(self.choices), WIDTH)
        self.mix = nn.Sequential(nn.LayerNorm(WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(LAYERS + 1))
        self.layers = nn.ModuleList(nn.Linear(3 * WIDTH, WIDTH) for _ in range(LAYERS))
        self.head = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def forward(self, graph: Inputs, rows: Tensor) -> Tensor:
        """Return the scores of some rows. A state is ``(nodes, rows, width)``."""
        features = graph.features[:, self.features]
        nodes = self.node(torch.cat([features, self.opcode(graph.opcode)], dim=1))
        state = nodes[:, None].repeat(1, len(rows), 1)
        chosen = self.choice(graph.choices[:, self.choices])[graph.codes[rows].T]
        state = self.mix(state.index_add(0, graph.configurable, chosen))
        for norm, layer in zip(self.norms, self.layers, strict=False):
            normal = norm(state)
            means = torch.sparse.mm(graph.neighbour_means, normal.flatten(1))
            joined = torch.cat([normal, *means.view(2, *state.shape)], dim=-1)
            state = state + functional.relu(layer(joined))
        state = self.norms[-1](state)
        return self.head(torch.cat([state.mean(dim=0), state.amax(dim=0)], dim=1))[:, 0]


def _varying(tables: Sequence[Tensor]) -> Tensor:
    """Return the columns that vary over the rows of all tables."""
    table = torch.cat(tables)
    return (table != table[0]).any(dim=0).nonzero()[:, 0]


def trained(graphs: Sequence[Inputs], seed: int) -> GraphSage:
    torch.manual_seed(seed)
    network = GraphSage(graphs)
    optimizer = torch.optim.AdamW(network.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=EPOCHS)
    for _ in range(EPOCHS):
        epoch = []
        for graph in graphs:
            for rows in torch.randperm(len(graph.cost)).split(ROWS):
                epoch.append((graph, rows))
        for step in torch.randperm(len(epoch)).split(GRAPHS_PER_STEP):
            optimizer.zero_grad()
            for number in step.tolist():
                graph, rows = epoch[number]
                loss = pairwise_loss(network(graph, rows), graph.cost[rows])
                (loss / len(step)).backward()
            optimizer.step()
        schedule.step()
    return network


def pairwise_loss(score: Tensor, cost: Tensor) -> Tensor:
    """Return the mean logistic loss over the pairs of configurations of different cost."""
    losses = functional.softplus(score[:, None] - score)[cost[:, None] < cost]
    return losses.sum() / max(1, len(losses))


@torch.no_grad()
def scores_of(network: GraphSage, graph: Inputs) -> list[float]:
    pieces = torch.arange(len(graph.cost)).split(ROWS)
    return torch.cat([network(graph, rows) for rows in pieces]).tolist()


def _fold(graphs: Sequence[Inputs], fold: Fold, seed: int, stored: Path) -> tuple[float, Any]:
    """Return CPU seconds, and the scores of the graphs that the fold scores."""
    if not stored.exists():
        begun = time.process_time()
        network = trained([graph for i, graph in enumerate(graphs) if i not in fold.held], seed)
        scores = [scores_of(network, graphs[number]) for number in fold.scored]
        seconds = time.process_time() - begun
        stored.write_text(json.dumps([seconds, scores]), encoding="utf-8")
        print(f"{stored}: {seconds:.0f} s", flush=True)
    seconds, scores = json.loads(stored.read_text(encoding="utf-8"))
    return seconds, map(np.array, scores)


def _row(collection: Collection, paths: Sequence[Path], work: Path) -> list[Cell]:
    begun = time.process_time()
    columns = labelled_rows(paths, collection.kind, collection)
    data = TrainingData.from_graphs(columns, target_of(collection.hardware))
    plan = FoldPlan.of(data)
    model = Model.of("lambdarank", collection.kind)
    curves = plan.curves(data, model, FitSettings(ROUNDS, threads=1), lambda fold: None)
    tree_seconds = time.process_time() - begun
    trees = {name: metrics["score"] for name, metrics in curves.at(-1).items()}
    by_name = {path.stem: path for path in paths}
    graphs = [Inputs.of(read_graph(by_name[part.name]), part) for part in data.parts]
    work = work / f"{collection}-{len(graphs)}".replace(":", "-")
    work.mkdir(parents=True, exist_ok=True)
    seconds = [0.0 for _ in SEEDS]
    peers: list[dict[str, float]] = [{} for _ in SEEDS]
    for at, seed in enumerate(SEEDS):
        for number, fold in enumerate(plan.folds):
            taken, scores = _fold(graphs, fold, seed, work / f"seed-{seed}-fold-{number}.json")
            seconds[at] += taken
            for part, score in zip((data.parts[i] for i in fold.scored), scores, strict=True):
                score = (blend_default(part, score) if plan.fallback else score)[part.group]
                metrics = graph_metrics(collection.kind, score, part.cost, part.group)
                peers[at][part.name] = metrics["score"]
    gap = paired_difference(trees, peers[0])
    return [
        str(collection),
        len(trees),
        _spread(peers[0]),
        ", ".join(f"{_spread(peer)[0]:.3f}" for peer in peers[1:]),
        _spread(trees),
        f"{gap.mean:+.3f} ± {gap.error:.3f}",
        round(seconds[0]),
        round(tree_seconds),
    ]


def _spread(scores: dict[str, float]) -> list[float]:
    about = summary(scores)
    return [about["mean"], about["std"]]


def graph_network(job: Job) -> Table:
    """Return the table; networks in the workspace are not trained again."""
    torch.set_num_threads(1)
    rows = []
    for name in job.collections or MEASURED:
        files = graph_files(job.root.npz, [name], where=str(job.root.path))
        parts = [[file.path for file in files if file.split == "train"]]
        if len(parts[0]) < FEW_GRAPHS:
            parts.append([file.path for file in files if file.split in ("train", "valid")])
        rows += [_row(Collection.parse(name), paths, job.workspace) for paths in parts]
    heads = ["collection", "graphs", PEER, "other seeds", f"lambdarank, all {ROUNDS} rounds"]
    heads += ["its lead ± standard error", "CPU seconds: network", "trees"]
    title = "A graph network and trees, out of fold"
    labels = "measured on CPU (cpu) and on an NVIDIA H200 (nvidia-h200)"
    return Table(title=title, labels=labels, seeds=1, heads=heads, rows=rows)
