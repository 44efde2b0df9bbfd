"""Training data that needs no graph file, and helpers that fit and save models."""

from dataclasses import replace

import numpy as np

from xlarank.data.schema import MAX_RANK, TILE_SLOTS
from xlarank.features.rows import GraphRows, Recipe
from xlarank.models.card import ModelCard
from xlarank.models.model import Model
from xlarank.models.training_data import FitSettings, TrainingData

ROUNDS = 20
KINDS = ("layout", "tile")
RECIPE = Recipe("a" * 16, None, max_configs=0)


def fitted(name, data, *, seed=0, seeds=1, rounds=ROUNDS, kind="layout", **params):
    """Return a fitted model; one thread, as the data is small."""
    settings = FitSettings(rounds, seed, threads=1)
    return Model.of(name, kind, params).fit(data, settings, seeds)


def saved(model, folder, **changes):
    """Save a model and return it with its card; ``changes`` are values of the card."""
    collection = "layout:cpu:random" if model.kind == "layout" else "tile:cpu"
    trained_on = {"train": ["family0__a"]}
    card = ModelCard(collection=collection, recipe=RECIPE, trained_on=trained_on, **changes)
    return model.save(folder, card)


def scores_of(model, data):
    """Return the scores of all rows, graph by graph."""
    return np.concatenate([model.score(graph) for graph in data.parts])


COLUMNS = ["size", "waste", "clash", "noise"]


def graph_rows(name, costs, *, features=None, copies=None, columns=COLUMNS):
    """Return a graph: row ``i`` costs ``costs[i]`` ns, with ``copies[i]`` repeats after all rows.

    A repeat is one nanosecond slower than the one before. The first column is constant within the
    graph.
    """
    distinct = len(costs)
    repeats = [
        (row, slower) for row, count in enumerate(copies or ()) for slower in range(1, count + 1)
    ]
    group, delay = np.array([*((row, 0) for row in range(distinct)), *repeats], np.int64).T
    runtime = np.array(costs, np.int64)[group] + delay
    if features is None:
        features = np.tile(np.array(costs)[:, None], len(columns) - 1)
    ids = np.arange(len(group), dtype=np.int64)
    ones = np.ones(len(group), np.int64)
    size = np.array([distinct], np.float32)
    values = np.asarray(features, np.float32)
    return GraphRows(name, list(columns), size, values, group, ids, runtime, ones)


def easy_graph(name, configs, seed):
    """Return a graph whose runtime grows with waste and clash; the last column is noise."""
    rng = np.random.default_rng(seed)
    features = rng.random((configs, 3))
    unit = 10.0 ** rng.integers(4, 8)
    costs = np.rint(unit * (1 + 3 * features[:, 0] + features[:, 1])).astype(np.int64)
    return graph_rows(name, costs.tolist(), features=features)


def easy_data(graphs=6, configs=60, seed=0):
    """Return data of graphs of ``easy_graph``, two of each family."""
    names = [f"family{number // 2}__{'ab'[number % 2]}" for number in range(graphs)]
    rows = [easy_graph(name, configs, 100 * seed + i) for i, name in enumerate(names)]
    return TrainingData.from_graphs(rows)


#: As stored: log2(1 + bound), 0 for a whole dimension.
BOUNDS = [f"bounds__{slot}_{i}__log" for slot in TILE_SLOTS for i in range(MAX_RANK)]


def kernel(name, logs, costs, *, families=("dot",)):
    """Return a kernel whose row ``i`` has log2(1 + output bound 0) of ``logs[i]``."""
    features = np.zeros((len(logs), len(BOUNDS)))
    features[:, BOUNDS.index("bounds__output_0__log")] = logs
    rows = graph_rows(name, costs, features=features, columns=["size", *BOUNDS])
    return replace(rows, kernel_families=tuple(families))
