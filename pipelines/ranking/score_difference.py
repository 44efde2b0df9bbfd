"""Explanation of the difference of two scores: by cause and column, and by exact costs of nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import XlarankError
from xlarank.data.graph import Graph, GraphLike, LayoutGraph
from xlarank.data.structure import tensor_ranks
from xlarank.data.workspace import DEFAULT_ROOT, Workspace, WorkspaceLike
from xlarank.features.catalogue import cause_of
from xlarank.features.layout.config_costs import ConfigCopy, SlowNode, config_costs
from xlarank.features.layout.hardware import copy_hardware
from xlarank.features.layout.time_model import config_times
from xlarank.features.program.program_context import ProgramContext
from xlarank.features.program.tensors import layout_text
from xlarank.models.member import largest_first, sum_by_key
from xlarank.models.model import Model
from xlarank.models.validation.metrics import order_of
from xlarank.pipelines.ranking.model_choice import ModelFrom, choose_for_graph, rows_for_model
from xlarank.pipelines.support.tables import Table

if TYPE_CHECKING:
    import polars as pl

#: The compiler's default, in place of a number.
DEFAULT: Final = "default"
#: Fraction of the sum of absolute changes that the nodes of segments must cover.
_COVERED: Final = 0.8
#: Maximum distance in edges between connected nodes of a segment.
_MAX_DISTANCE: Final = 2
_Cost = TypeVar("_Cost", ConfigCopy, SlowNode)


@dataclass(frozen=True, repr=False)
class Explanation(Table):
    """Difference of the scores of ``configuration`` and ``against`` in parts, the largest first.

    ``difference == sum(causes) == sum(columns)``, up to the rounding of floats. Contributions below
    0 make ``configuration`` the faster of the two.

    Attributes:
        against_is: description of ``against``.
        ranks: 1-based ranks of both among all configurations, fastest first.
        runtime_ns: labels of both, 0 if not measured; None if all labels are withheld.
        estimated_ns: times of both that the model predicts; None if it only ranks.
        nodes: records of nodes with another estimated time; empty for hardware without a
            simulation. ``layouts`` and ``layouts_against`` are set by the configurations, empty if
            not configurable. ``nanoseconds``, of a node and of copies of its output, first minus
            second, sum to the difference of the estimated times, also if another model ranks.
        segments: records of connected nodes (ascending) with the sum of their changes.
        copies, copies_against: copies that the compiler must insert under one of the configurations
            alone, the slowest first.
        slow_nodes, slow_nodes_against: likewise, nodes that are slower because of their layouts.
    """

    graph: str
    collection: str
    model: str
    configuration: int
    against: int
    against_is: str
    ranks: tuple[int, int]
    configurations: int
    difference: float
    runtime_ns: tuple[int, int] | None
    estimated_ns: tuple[float, float] | None
    causes: dict[str, float]
    columns: dict[str, float]
    notes: tuple[str, ...]
    nodes: tuple[dict[str, Any], ...] = ()
    segments: tuple[dict[str, Any], ...] = ()
    copies: tuple[ConfigCopy, ...] = ()
    copies_against: tuple[ConfigCopy, ...] = ()
    slow_nodes: tuple[SlowNode, ...] = ()
    slow_nodes_against: tuple[SlowNode, ...] = ()

    def __repr__(self) -> str:
        largest = [f"{cause} {value:+z.4f}" for cause, value in [*self.causes.items()][:3]]
        return (
            f"<Explanation of {self.graph!r} by the {self.model} of {self.collection}: "
            f"configuration {self.configuration} (rank {self.ranks[0]:,}) against {self.against} "
            f"(rank {self.ranks[1]:,}), {self.difference:+z.4f}: {', '.join(largest)}>"
        )

    def to_polars(self) -> pl.DataFrame:
        """Return a table of the contributions by cause and by column, each with the same sum.

        Columns: ``part`` (cause or column), ``name``, ``contribution``.
        """
        import polars as pl

        rows = [("cause", *item) for item in self.causes.items()]
        rows += [("column", *item) for item in self.columns.items()]
        schema = {"part": pl.String, "name": pl.String, "contribution": pl.Float64}
        return pl.DataFrame(rows, schema, orient="row")


def explain(
    graph: GraphLike,
    workspace: WorkspaceLike = DEFAULT_ROOT,
    *,
    config: int | None = None,
    against: str | int | None = None,
    target: str | None = None,
    collection: str | None = None,
    model_from: ModelFrom | None = None,
) -> Explanation:
    """Explain the difference of the scores of two configurations, by cause, column and node.

    ``config`` is by default the first of the ranking, and ``against`` the compiler's default; the
    other arguments are those of `xlarank.rank`.

    Examples:
        >>> import xlarank
        >>> mlp = xlarank.SAMPLE / "npz/layout/cpu/random/valid/mlp__a.npz"
        >>> explanation = xlarank.explain(mlp, workspace="nowhere")
        >>> explanation.ranks[0], explanation.to_polars().columns
        (1, ['part', 'name', 'contribution'])
    """
    chosen, choice, hardware = choose_for_graph(
        Workspace.of(workspace), graph, target=target, collection=collection, model_from=model_from
    )
    return explain_graph(chosen, choice.model, hardware, config=config, against=against)


def explain_graph(
    graph: Graph,
    model: Model,
    hardware: str = "",
    *,
    config: int | None = None,
    against: str | int | None = None,
) -> Explanation:
    """Explain the difference of the scores of ``config`` (by default the best) and another.

    ``against`` is a configuration, or "default" for the compiler's default: a configuration that
    sets no layout, or the first tile. None is the default too, but the middle of the ranking if
    there is no default or ``config`` equals it. ``hardware`` is the graph's. Raises
    `ModelError` if the model cannot rank the graph, and `XlarankError` for an unknown
    configuration.
    """
    card = model.require_card()
    rows = rows_for_model(graph, model, hardware)
    scores = model.score(rows)
    order = order_of(scores[rows.group])
    rank = np.argsort(order) + 1
    first = _configuration(graph, int(order[0]) if config is None else config)
    second, description = _reference(graph, first, order, against)
    pair = rows.group[[first, second]]
    difference, columns = model.contributions(rows, int(pair[0]), int(pair[1]))
    runtimes = int(graph.runtime[first]), int(graph.runtime[second])
    fallback = card.fallback_note(rows)
    times = None if fallback else model.nanoseconds(scores[pair])
    causes = sum_by_key({cause_of(name).value: value} for name, value in columns.items())
    parts: dict[str, Any] = {}
    if isinstance(graph, LayoutGraph):
        parts = _parts_by_node(graph, model, hardware, first, second)
    return Explanation(
        graph=graph.name,
        collection=card.collection,
        model=model.name,
        configuration=first,
        against=second,
        against_is=description,
        ranks=(int(rank[first]), int(rank[second])),
        configurations=graph.configs,
        difference=difference,
        runtime_ns=runtimes if graph.labelled else None,
        estimated_ns=None if times is None else (float(times[0]), float(times[1])),
        causes=largest_first(causes),
        columns=largest_first(columns),
        notes=_notes(model, fallback, identical=pair[0] == pair[1]),
        **parts,
    )


def _parts_by_node(
    graph: LayoutGraph, model: Model, hardware: str, first: int, second: int
) -> dict[str, Any]:
    """Return copies, slow nodes, nodes and segments as in `Explanation`, as far as simulated."""
    parts: dict[str, Any] = {}
    changes = defaultdict[int, float](float)
    priced = copy_hardware(hardware) if hardware else model.require_card().recipe.hardware
    if priced is not None:
        copies, slow_nodes = config_costs(graph, first, priced)
        copies_against, slow_nodes_against = config_costs(graph, second, priced)
        parts["copies"] = _only_in(copies, copies_against)
        parts["copies_against"] = _only_in(copies_against, copies)
        parts["slow_nodes"] = _only_in(slow_nodes, slow_nodes_against)
        parts["slow_nodes_against"] = _only_in(slow_nodes_against, slow_nodes)
        for cost in parts["copies"] + parts["slow_nodes"]:
            changes[cost.node] += cost.nanoseconds
        for cost in parts["copies_against"] + parts["slow_nodes_against"]:
            changes[cost.node] -= cost.nanoseconds
    elif model.is_time_model:
        times = config_times(graph, first) - config_times(graph, second)
        changes.update(zip(graph.configurable.tolist(), times.tolist(), strict=True))
    else:
        return {}
    before = _layout_texts(graph, second)
    after = _layout_texts(graph, first)
    context = ProgramContext(graph)
    nodes = []
    for node, change in largest_first(changes).items():
        if change:
            opcode, shape = context.describe(node)
            record = {"node": node, "opcode": opcode, "shape": shape}
            record |= {"layouts": after.get(node, ""), "layouts_against": before.get(node, "")}
            nodes.append(record | {"nanoseconds": change})
    return parts | {"nodes": tuple(nodes), "segments": segments_of(graph, changes)}


def _only_in(costs: Iterable[_Cost], others: Iterable[_Cost]) -> tuple[_Cost, ...]:
    return tuple((Counter(costs) - Counter(others)).elements())


def _layout_texts(graph: LayoutGraph, config: int) -> dict[int, str]:
    """Return the layouts that a configuration sets, by configurable node."""
    rows = graph.table.rows[graph.table.codes[config]]
    return dict(zip(graph.configurable.tolist(), map(layout_text, rows), strict=True))


def _configuration(graph: Graph, name: str | int) -> int:
    if str(name).isdecimal() and int(name) < graph.configs:
        return int(name)
    expected = f"a number from 0 to {graph.configs - 1}" + (
        f" or {DEFAULT}" if str(name).isalpha() else ""
    )
    raise XlarankError(f"{graph.name} has no configuration {name}", expected=expected)


def _reference(
    graph: Graph, first: int, order: NDArray[np.intp], against: str | int | None
) -> tuple[int, str]:
    """Return the configuration to compare with, and its description."""
    if against is not None and against != DEFAULT:
        number = _configuration(graph, against)
        return number, f"configuration {number}"
    defaults = graph.unset.tolist() if isinstance(graph, LayoutGraph) else [0]
    if against is None and (not defaults or graph.group[defaults[0]] == graph.group[first]):
        return int(order[len(order) // 2]), "the middle of the ranking"
    if not defaults:
        got = f"no candidate of {graph.name} is the compiler's default"
        do = "pass the number of another configuration to `against`"
        raise XlarankError(got, expected="a configuration that sets no layout", do=do)
    return defaults[0], "the compiler's default"


def _notes(model: Model, fallback: str, identical: bool) -> tuple[str, ...]:
    notes = []
    if fallback:
        notes += [fallback, "ranks are of both, contributions of the model alone"]
    if model.shipped and model.members:
        taught = "estimates of the TPU's compiler, not from measurements"
        notes.append(f"{model.name} learned from {taught}")
    elif model.shipped:
        notes.append(f"this is the {model.name}, in which nothing is learned")
    if identical:
        nothing = "both configurations are identical: there is nothing to explain"
        notes.append(f"{nothing}; choose another with `config`")
    if len({member.loss.name for member in model.members}) > 1:
        ranks = "an ensemble averages the ranks that its members give, and ranks have no parts"
        scaled = "each member's own exact contributions are scaled to the difference of its ranks"
        notes.append(f"{ranks}: {scaled}")
    return tuple(notes)


def segments_of(graph: Graph, changes: Mapping[int, float]) -> tuple[dict[str, Any], ...]:
    """Return up to five groups of connected nodes with large ``changes``, and their sums.

    Nodes are connected over tensors of rank 2 or more: tensors of lower rank have one layout, and a
    shared scalar would connect half a program.
    """
    by_size = largest_first(changes)
    covered = np.cumsum([0.0, *map(abs, by_size.values())])
    largest = [*by_size][: int((covered[:-1] < _COVERED * covered[-1]).sum())]
    program = nx.empty_graph(graph.nodes)
    has_layouts = tensor_ranks(graph.node_feat)[graph.edges[:, 1]] > 1
    program.add_edges_from(graph.edges[has_layouts].tolist())
    connected = nx.empty_graph(largest)
    for node in largest:
        near = nx.single_source_shortest_path_length(program, node, _MAX_DISTANCE)
        connected.add_edges_from((node, other) for other in near.keys() & largest)
    sums = {}
    for part in nx.connected_components(connected):
        sums[tuple(sorted(part))] = sum(changes[node] for node in part)
    largest_sums = islice(largest_first(sums).items(), 5)
    return tuple({"nodes": nodes, "nanoseconds": change} for nodes, change in largest_sums)
