"""Contributions to the difference of two scores: by node, cause, column and segment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import XlarankError
from xlarank.data.graph import Graph, LayoutGraph
from xlarank.data.hlo.reading import NodeName
from xlarank.data.structure import tensor_ranks
from xlarank.features.attribution import walk_between
from xlarank.features.layout.config_costs import ConfigRelayout, SlowNode, config_costs
from xlarank.features.layout.time_model import config_times
from xlarank.features.meanings import cause_of, describe_node, layout_text
from xlarank.models.contributions import Contributions, sum_by_key
from xlarank.models.model import Model
from xlarank.models.validation.metrics import order_of
from xlarank.pipelines.ranking.model_choice import rows_for_model

if TYPE_CHECKING:
    import polars as pl

#: The configuration that sets no layout.
DEFAULT: Final = "default"
#: Fraction of the sum of absolute contributions that the nodes of segments must cover.
_COVERED: Final = 0.8
#: Maximum distance in edges between connected nodes of a segment.
_MAX_DISTANCE: Final = 2
#: Attributes of an explanation with other names in its JSON.
_KEYS: Final = {
    "now": "configuration",
    "then": "against",
    "against": "against_is",
    "runtime": "runtime_ns",
}
_Key = TypeVar("_Key", int, str, tuple[int, ...])


@dataclass(frozen=True)
class NodePart:
    """Contribution of one node's layouts ``now`` and ``then`` to the difference.

    Attributes:
        name, op_name: names in the HLO module and in the framework's program; None without a
            module.
        nanoseconds: estimated time ``now`` minus ``then``, if the model is the time model.
    """

    node: int
    name: str | None
    op_name: str | None
    opcode: str
    shape: str
    now: str
    then: str
    value: float
    nanoseconds: float | None = None


@dataclass(frozen=True, repr=False)
class Explanation:
    """Contributions to the difference of the scores of configurations ``now`` and ``then``, the
    largest first.

    ``difference == sum(nodes) + rest == sum(causes) == sum(columns)``, up to the rounding of
    floats. Contributions below 0 make ``now`` the faster of the two.

    Attributes:
        against: description of ``then``.
        ranks: 1-based ranks of both among all configurations, fastest first.
        runtime: labels of both in nanoseconds, 0 if not measured; None if all labels are withheld.
        nodes: nodes with a contribution; empty for tiles.
        rest: part of the difference without a node; all of it for tiles.
        members: contributions by loss of an ensemble.
        segments: sums of contributions, by the ascending numbers of connected nodes.
        names: names of all nodes in the HLO module; empty without one.
        estimated: nanoseconds of both, if the model is the time model; those of ``nodes`` sum to
            their difference.
        copies, copies_against: copies that the compiler must insert under one of the configurations
            alone, ``now`` and ``then``, the slowest first; empty for hardware without a simulation.
        slow_nodes, slow_nodes_against: likewise, nodes that are slower because of their layouts.
            With the copies, their times sum to the difference of the estimated times.
    """

    graph: str
    collection: str
    model: str
    now: int
    then: int
    against: str
    ranks: tuple[int, int]
    configurations: int
    difference: float
    runtime: tuple[int, int] | None
    nodes: tuple[NodePart, ...]
    rest: float
    causes: dict[str, float]
    columns: dict[str, float]
    members: dict[str, float]
    segments: dict[tuple[int, ...], float]
    notes: tuple[str, ...]
    names: tuple[NodeName, ...] = ()
    estimated: tuple[float, float] | None = None
    copies: tuple[ConfigRelayout, ...] = ()
    copies_against: tuple[ConfigRelayout, ...] = ()
    slow_nodes: tuple[SlowNode, ...] = ()
    slow_nodes_against: tuple[SlowNode, ...] = ()

    def __repr__(self) -> str:
        largest = [f"{cause} {value:+z.4f}" for cause, value in [*self.causes.items()][:3]]
        return (
            f"<Explanation of {self.graph!r} by the {self.model} of {self.collection}: "
            f"configuration {self.now} (rank {self.ranks[0]:,}) against {self.then} (rank "
            f"{self.ranks[1]:,}), {self.difference:+z.4f}: {', '.join(largest)}>"
        )

    def to_polars(self) -> pl.DataFrame:
        """Return a table of the contributions; those of one ``part`` (cause, column or node)
        overlap those of another.

        Columns: ``part``, ``name``, ``now`` and ``then`` (layouts; null for causes and columns),
        ``contribution``.
        """
        import polars as pl

        rows: list[tuple[object, ...]] = []
        for part, values in (("cause", self.causes), ("column", self.columns)):
            rows += [(part, name, None, None, value) for name, value in values.items()]
        for node in self.nodes:
            rows.append(("node", self.called(node.node), node.now, node.then, node.value))
        text = dict.fromkeys(("part", "name", "now", "then"), pl.String)
        return pl.DataFrame(rows, {**text, "contribution": pl.Float64}, orient="row")

    def called(self, node: int) -> str:
        """Return a node's number and its name in the HLO module, if given."""
        return f"{node} {self.names[node].name}" if self.names else str(node)

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        values = {_KEYS.get(name, name): value for name, value in asdict(self).items()}
        del values["names"]
        segments = [{"nodes": nodes, "value": value} for nodes, value in self.segments.items()]
        return values | {"segments": segments}


def explain_graph(
    graph: Graph,
    model: Model,
    *,
    config: int | None = None,
    against: str | int | None = None,
    names: Sequence[NodeName] = (),
) -> Explanation:
    """Attribute the difference of the scores of ``config`` (by default the best) and another.

    ``against`` is a configuration, or "default" for one that sets no layout; None is the default
    or, if there is none or ``config`` equals it, the middle of the ranking.
    `xlarank.data.hlo.reading.node_names` gives ``names``. Raises `ModelError` if the model cannot
    rank the graph, and `XlarankError` for an unknown configuration.
    """
    card = model.require_card()
    rows = rows_for_model(graph, model)
    scores = model.score(rows)
    order = order_of(scores[rows.group])
    rank = np.argsort(order) + 1
    now = _configuration(graph, int(order[0]) if config is None else config)
    then, description = _reference(graph, now, order, against)
    layout_graph = graph if isinstance(graph, LayoutGraph) else None
    settings = card.recipe.settings
    walk = walk_between(layout_graph, rows, settings, now, then) if layout_graph else None
    parts = model.contributions(rows, int(rows.group[now]), int(rows.group[then]), walk)
    changes: dict[int, float] = {}
    estimated = None
    if layout_graph and model.is_time_model:
        changes, estimated = _estimated_times(layout_graph, now, then)
    nodes = _node_parts(layout_graph, parts, now, then, names, changes) if layout_graph else ()
    values = {part.node: part.value for part in nodes}
    causes = sum_by_key({cause_of(name).value: value} for name, value in parts.columns.items())
    return Explanation(
        graph=graph.name,
        collection=card.collection,
        model=model.name,
        now=now,
        then=then,
        against=description,
        ranks=(int(rank[now]), int(rank[then])),
        configurations=graph.configs,
        difference=parts.difference,
        runtime=(int(graph.runtime[now]), int(graph.runtime[then])) if graph.labelled else None,
        nodes=nodes,
        rest=parts.difference - sum(values.values()),
        causes=_largest_first(causes),
        columns=_largest_first(parts.columns),
        members=parts.losses,
        segments=segments_of(graph, values),
        notes=_notes(model, card.fallback_note(rows), parts, rows.group[now] == rows.group[then]),
        names=tuple(names),
        estimated=estimated,
        **_own_costs(layout_graph, settings.hardware, now, then),
    )


def _estimated_times(
    graph: LayoutGraph, now: int, then: int
) -> tuple[dict[int, float], tuple[float, float]]:
    """Return each node's nanoseconds under ``now`` minus ``then``, and the sums under both."""
    new, old = (config_times(graph, config) for config in (now, then))
    changes = {}
    for node, before in zip(new, old, strict=True):
        changes[node.node] = node.nanoseconds - before.nanoseconds
    return changes, (sum(n.nanoseconds for n in new), sum(n.nanoseconds for n in old))


def _own_costs(
    graph: LayoutGraph | None, hardware: str | None, now: int, then: int
) -> dict[str, Any]:
    """Return the copies and slow nodes under each configuration that the other one lacks, by
    attribute of `Explanation`.
    """
    if graph is None or hardware is None:
        return {}
    names = ("copies", "slow_nodes")
    costs = {}
    both = (config_costs(graph, config, hardware) for config in (now, then))
    for name, first, second in zip(names, *both, strict=True):
        costs[name] = tuple((Counter(first) - Counter(second)).elements())
        costs[f"{name}_against"] = tuple((Counter(second) - Counter(first)).elements())
    return costs


def _configuration(graph: Graph, name: str | int) -> int:
    if str(name).isdecimal() and int(name) < graph.configs:
        return int(name)
    expected = f"a number from 0 to {graph.configs - 1}" + (
        f" or {DEFAULT}" if str(name).isalpha() else ""
    )
    raise XlarankError(f"{graph.name} has no configuration {name}", expected=expected)


def _reference(
    graph: Graph, now: int, order: NDArray[np.intp], against: str | int | None
) -> tuple[int, str]:
    """Return the configuration to compare with, and its description."""
    if against is not None and against != DEFAULT:
        number = _configuration(graph, against)
        return number, f"configuration {number}"
    defaults = graph.unset.tolist() if isinstance(graph, LayoutGraph) else []
    group = graph.group
    if against is None and (not defaults or group[defaults[0]] == group[now]):
        return int(order[len(order) // 2]), "the middle of the ranking"
    if not defaults:
        got = f"no candidate of {graph.name} is the compiler's default"
        do = "pass the number of another configuration to `against`"
        raise XlarankError(got, expected="a configuration that sets no layout", do=do)
    return defaults[0], "the compiler's default"


def set_layouts(graph: LayoutGraph, config: int) -> dict[int, NDArray[np.int8]]:
    """Return the layouts ``(18,)`` of a configuration by configurable node."""
    rows = graph.table.rows[graph.table.codes[config]]
    return dict(zip(graph.configurable.tolist(), rows, strict=True))


def _node_parts(
    graph: LayoutGraph,
    parts: Contributions,
    now: int,
    then: int,
    names: Sequence[NodeName],
    changes: Mapping[int, float],
) -> tuple[NodePart, ...]:
    """Return contributions by node: its step of the walk."""
    now_layouts = set_layouts(graph, now)
    then_layouts = set_layouts(graph, then)
    nodes = []
    for node, value in _largest_first(parts.nodes).items():
        opcode, shape = describe_node(graph, node)
        part = NodePart(
            node,
            names[node].name if names else None,
            names[node].op_name if names else None,
            opcode,
            shape,
            now=layout_text(now_layouts[node]),
            then=layout_text(then_layouts[node]),
            value=value,
            nanoseconds=changes.get(node),
        )
        nodes.append(part)
    return tuple(nodes)


def _notes(model: Model, fallback: str, parts: Contributions, identical: bool) -> tuple[str, ...]:
    notes = []
    if fallback:
        notes.append(f"{fallback}; ranks are of both, contributions of the model alone")
    if model.shipped and model.members:
        notes.append(
            "this is a shipped ranker, trained on estimates of the TPU's compiler, not on "
            "measurements"
        )
    elif model.shipped:
        formula = "this is the shipped time model of TPU layouts, in which nothing is learned"
        notes.append(model.choice or formula)
    if identical:
        notes.append(
            "both configurations are identical: there is nothing to explain; choose another with "
            "`config`"
        )
    if len(parts.losses) > 1:
        notes.append(
            "an ensemble averages the ranks that its members give, and ranks have no parts: each "
            "member's own exact contributions are scaled to the difference of its ranks"
        )
    return tuple(notes)


def _largest_first(values: Mapping[_Key, float]) -> dict[_Key, float]:
    return dict(sorted(values.items(), key=lambda item: (-abs(item[1]), item[0])))


def program_graph(graph: Graph) -> nx.DiGraph:
    """Return the program as a graph, with an edge from producer to consumer for tensors of rank 2
    or more.

    Tensors of lower rank have one layout, and a shared scalar would connect half a program.
    """
    program = nx.empty_graph(graph.nodes, nx.DiGraph)
    has_layouts = tensor_ranks(graph.node_feat)[graph.edges[:, 1]] > 1
    program.add_edges_from(graph.edges[has_layouts, ::-1].tolist())
    return program


def segments_of(graph: Graph, values: Mapping[int, float]) -> dict[tuple[int, ...], float]:
    """Return sums of up to five groups of connected nodes with large ``values`` of one sign."""
    by_size = _largest_first(values)
    covered = np.cumsum([0.0, *map(abs, by_size.values())])
    largest = [*by_size][: int((covered[:-1] < _COVERED * covered[-1]).sum())]
    program = program_graph(graph).to_undirected(as_view=True)
    connected = nx.empty_graph(largest)
    for node in largest:
        near = nx.single_source_shortest_path_length(program, node, _MAX_DISTANCE).keys() & largest
        same_sign = (other for other in near if (values[other] > 0) == (values[node] > 0))
        connected.add_edges_from((node, other) for other in same_sign)
    sums = {}
    for part in nx.connected_components(connected):
        sums[tuple(sorted(part))] = sum(values[node] for node in part)
    return dict(islice(_largest_first(sums).items(), 5))
