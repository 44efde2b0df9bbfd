"""Segments of a program, connected nodes that contribute most, and their picture: layouts stand on the edges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import Graph, LayoutGraph, tensor_ranks
from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.meanings import default_layout_text, describe_node

#: Readable in a light and in a dark page, distinguishable by the colour-blind.
FASTER, SLOWER, CLASH = "#2f6db5", "#d9822b", "#c23b3b"
_MOST_NODES: Final = 18
#: Nodes side by side; more, unless they are the focus itself, are not drawn.
_MOST_ABREAST: Final = 5
_REACH: Final = 2
_BOX, _HIGH, _GAP, _LAYER = 158.0, 44.0, 22.0, 92.0
_CHARACTERS: Final = 22
_SWEEPS: Final = 4

#: The nodes of the largest contributions with this share of the sum of absolute contributions are kept.
_COVERED: Final = 0.8
#: Two of them are connected when at most this many edges lie between.
_APART: Final = 2
_MOST_SEGMENTS: Final = 5
#: What a picture needs where no page gives it colours.
_STYLE: Final = (
    "<style>svg{color:#1f2d3d;background:#fff;--page:#fff}"
    "@media (prefers-color-scheme:dark){svg{color:#e3e8ee;background:#14181d;--page:#14181d}}</style>"
)


@dataclass(frozen=True)
class Segment:
    """Connected nodes, ascending, and the sum of their contributions."""

    nodes: tuple[int, ...]
    value: float


def program_graph(graph: Graph) -> nx.DiGraph:
    """Return the program as a graph, with an edge from producer to consumer for tensors of rank 2 or more.

    Others have no choice of layout, and a shared scalar would connect half a program.
    """
    program = nx.DiGraph()
    program.add_nodes_from(range(graph.nodes))
    rank = tensor_ranks(graph.node_feat)
    program.add_edges_from((int(operand), int(node)) for node, operand in graph.edges if rank[operand] > 1)
    return program


def segments_of(graph: Graph, values: Mapping[int, float]) -> tuple[Segment, ...]:
    """Return the segments of the largest contributions; ``values`` are the contributions of nodes.

    All nodes of a segment have contributions of the same sign.
    """
    total = sum(abs(value) for value in values.values())
    if total == 0:
        return ()
    largest: list[int] = []
    covered = 0.0
    for node in sorted(values, key=lambda n: (-abs(values[n]), n)):
        if covered >= _COVERED * total:
            break
        largest.append(node)
        covered += abs(values[node])
    around = program_graph(graph).to_undirected(as_view=True)
    joined: nx.Graph = nx.Graph()
    joined.add_nodes_from(largest)
    chosen = set(largest)
    for node in largest:
        for other in nx.single_source_shortest_path_length(around, node, _APART):
            if other in chosen and (values[other] > 0) == (values[node] > 0):
                joined.add_edge(node, other)
    parts = nx.connected_components(joined)
    segments = [Segment(tuple(sorted(part)), sum(values[node] for node in part)) for part in parts]
    return tuple(sorted(segments, key=lambda s: (-abs(s.value), s.nodes))[:_MOST_SEGMENTS])


@dataclass(frozen=True)
class Drawn:
    """What is drawn.

    Attributes:
        values: contributions of nodes, below 0 where they make the configuration faster.
        config, other: whose layouts stand on the edges, and whose they are compared with.
        focus: nodes to draw, with what is around them.
        names: what the module calls nodes, where that is known.
    """

    graph: LayoutGraph
    values: Mapping[int, float]
    config: int
    other: int
    focus: Sequence[int]
    title: str
    names: Mapping[int, str] = field(default_factory=dict)

    def svg(self, *, alone: bool = True) -> str:
        """The picture as SVG; ``alone`` for a file of its own, else in the colours of the page around it."""
        program = program_graph(self.graph)
        chosen = self._chosen(program)
        part = program.subgraph(chosen).copy()
        part.remove_nodes_from(_crowding(part, chosen, set(self.focus)))
        place = _placed(part)
        left, top = min(x for x, _ in place.values()), min(y for _, y in place.values())
        place = {node: (x - left + _BOX / 2 + 12, y - top + _HIGH / 2 + 40) for node, (x, y) in place.items()}
        width = max(x for x, _ in place.values()) + _BOX
        height = max(y for _, y in place.values()) + _HIGH / 2 + 40
        width = max(width, 460.0)
        title = escape(self.title)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
            f'style="max-width:{width:.0f}px;width:100%" '
            'font-family="Helvetica, Arial, sans-serif" font-size="11">',
            f"<title>{title}</title>",
            _STYLE if alone else "",
            f'<text x="12" y="20" font-size="13" font-weight="bold" fill="currentColor">{title}</text>',
            *self._edges(part, place),
            *self._nodes(part, place),
            *_legend(height - 14),
            "</svg>",
        ]
        return "\n".join(line for line in parts if line) + "\n"

    def _chosen(self, program: nx.DiGraph) -> list[int]:
        """The focus, then what is around it, nearest first, until there is enough to see."""
        ahead = sorted(self.focus, key=lambda node: -abs(self.values.get(node, 0.0)))[: _MOST_NODES * 2 // 3]
        around = program.to_undirected(as_view=True)
        distance = nx.multi_source_dijkstra_path_length(around, set(ahead), cutoff=_REACH)
        configurable = set(self.graph.configurable.tolist())
        others = sorted(
            (node for node in distance if node not in set(ahead)),
            key=lambda node: (distance[node], node not in configurable, node),
        )
        return [*ahead, *others][:_MOST_NODES]

    def _edges(self, part: nx.DiGraph, place: Mapping[int, tuple[float, float]]) -> Iterator[str]:
        wishes = self._wishes()
        for producer, consumer in part.edges:
            (x1, y1), (x2, y2) = place[producer], place[consumer]
            y1, y2 = y1 + _HIGH / 2, y2 - _HIGH / 2
            made, before = self._made(producer, self.config), self._made(producer, self.other)
            wanted = wishes.get((consumer, producer))
            clash = wanted is not None and not made.startswith(wanted[:-1])
            colour, opacity = (CLASH, 0.9) if clash else ("currentColor", 0.45)
            bend = (y2 - y1) / 2
            aside = _aside(place, (x1, y1), (x2, y2))
            yield (
                f'<path d="M{x1:.0f},{y1:.0f}C{x1 + aside:.0f},{y1 + bend:.0f} {x2 + aside:.0f},{y2 - bend:.0f} '
                f'{x2:.0f},{y2:.0f}" fill="none" stroke="{colour}" stroke-opacity="{opacity}" stroke-width="1.3"/>'
            )
            text = f"{made} ≠ {wanted}" if clash else made
            text += f", was {before}" if before != made else ""
            if len(text) > 2:
                yield (
                    f'<text x="{(x1 + x2) / 2 + 0.75 * aside:.0f}" y="{(y1 + y2) / 2 + 3:.0f}" font-size="9.5" '
                    f'text-anchor="middle" fill="{colour}" paint-order="stroke" stroke="var(--page,#fff)" '
                    f'stroke-width="4">{escape(text)}</text>'
                )

    def _made(self, node: int, config: int) -> str:
        """The layout of a node's output in a configuration, minor-to-major."""
        own = self._row(node, config)
        set_ = "" if own is None else ",".join(str(int(d)) for d in own[:MAX_RANK] if d >= 0)
        return f"{{{set_}}}" if set_ else default_layout_text(self.graph, node)

    def _wishes(self) -> dict[tuple[int, int], str]:
        """Layouts that configurable consumers set for an operand, by (consumer, operand)."""
        tensors = LayoutContext(self.graph).slot_tensor
        found: dict[tuple[int, int], str] = {}
        for k, node in enumerate(self.graph.configurable.tolist()):
            row = self._row(node, self.config)
            assert row is not None
            for slot in range(1, len(LAYOUT_SLOTS)):
                entries = [str(int(d)) for d in row[MAX_RANK * slot : MAX_RANK * (slot + 1)] if d >= 0]
                if entries and tensors[k, slot] >= 0:
                    found[node, int(tensors[k, slot])] = "{" + ",".join(entries) + "}"
        return found

    def _row(self, node: int, config: int) -> NDArray[np.int8] | None:
        at = np.flatnonzero(self.graph.configurable == node)
        return self.graph.table.rows[self.graph.table.codes[config, at[0]]] if len(at) else None

    def _nodes(self, part: nx.DiGraph, place: Mapping[int, tuple[float, float]]) -> Iterator[str]:
        largest = max((abs(value) for value in self.values.values()), default=0.0) or 1.0
        configurable = set(self.graph.configurable.tolist())
        for node in part.nodes:
            x, y = place[node]
            value = self.values.get(node, 0.0)
            text = describe_node(self.graph, node)
            fill = FASTER if value < 0 else SLOWER
            strength = 0.15 + 0.7 * abs(value) / largest if value else 0.0
            border = "1.6" if node in configurable else "0.7"
            dash = "" if node in configurable else ' stroke-dasharray="4 3"'
            box = f'x="{x - _BOX / 2:.0f}" y="{y - _HIGH / 2:.0f}" width="{_BOX:.0f}" height="{_HIGH:.0f}" rx="6"'
            said = f", contributes {value:+.4f}" if value else ""
            top = y - (10 if value else 3)
            head = self.names.get(node) or f"{text.opcode} {node}"
            lines = [_line(x, top, head, bold=True), _line(x, top + 14, text.shape)]
            if value:
                lines.append(_line(x, top + 28, f"{value:+.3f}"))
            called = f" {self.names[node]}" if self.names.get(node) else ""
            yield (
                f"<g><title>node {node}{escape(called)}: {escape(str(text))}{said}</title>"
                f'<rect {box} fill="var(--page,#fff)"/><rect {box} fill="{fill}" fill-opacity="{strength:.2f}" '
                f'stroke="currentColor" stroke-width="{border}"{dash}/>{"".join(lines)}</g>'
            )


def _line(x: float, y: float, text: str, *, bold: bool = False) -> str:
    shown = text if len(text) <= _CHARACTERS else text[: _CHARACTERS - 1] + "…"
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="middle" fill="currentColor"{weight}>{escape(shown)}</text>'


def _aside(place: Mapping[int, tuple[float, float]], start: tuple[float, float], end: tuple[float, float]) -> float:
    """How far to the right an edge bends so that its middle goes around the nodes of the layers that it passes."""
    between = [x for x, y in place.values() if start[1] < y < end[1]]
    if not between:
        return 0.0
    right = max(between) + _BOX / 2 + 24
    return max(0.0, (right - (start[0] + end[0]) / 2) / 0.75)  # the middle of a cubic lies at 3/4 of its bend


def _layers(part: nx.DiGraph) -> dict[int, int]:
    """Depth of each node: operands above their consumers, sources right above the first of theirs."""
    layer = {node: depth for depth, nodes in enumerate(nx.topological_generations(part)) for node in nodes}
    for node in sorted(part.nodes, key=lambda n: -layer[n]):
        below = [layer[consumer] for consumer in part.successors(node)]
        if below and part.in_degree(node) == 0:
            layer[node] = min(below) - 1
    return layer


def _crowding(part: nx.DiGraph, chosen: Sequence[int], focus: set[int]) -> set[int]:
    """Nodes too many for their layer, those chosen last first."""
    layer = _layers(part)
    taken: dict[int, int] = {}
    crowding = set()
    for node in chosen:
        taken[layer[node]] = taken.get(layer[node], 0) + 1
        if taken[layer[node]] > _MOST_ABREAST and node not in focus:
            crowding.add(node)
    return crowding


def _placed(part: nx.DiGraph) -> dict[int, tuple[float, float]]:
    """Centres of nodes: operands above their consumers, crossings lessened by the mean of the neighbours."""
    layer = _layers(part)
    rows: dict[int, list[int]] = {}
    for node in sorted(part.nodes):
        rows.setdefault(layer[node], []).append(node)
    x = {node: float(place) for nodes in rows.values() for place, node in enumerate(nodes)}
    around = part.to_undirected(as_view=True)
    for _ in range(_SWEEPS):
        for depth in [*sorted(rows), *sorted(rows, reverse=True)]:
            rows[depth].sort(key=lambda node: float(np.mean([x[n] for n in around[node]] or [x[node]])))
            shift = (len(rows[depth]) - 1) / 2
            for place, node in enumerate(rows[depth]):
                x[node] = place - shift
    depths = {depth: number for number, depth in enumerate(sorted(rows))}
    return {node: (x[node] * (_BOX + _GAP), depths[layer[node]] * _LAYER) for node in part.nodes}


def _legend(y: float) -> Iterator[str]:
    parts = ((FASTER, "makes it faster"), (SLOWER, "makes it slower"), (CLASH, "layouts that clash: a copy"))
    for number, (colour, text) in enumerate(parts):
        x = 12 + 125 * number
        yield f'<rect x="{x}" y="{y - 9:.0f}" width="10" height="10" rx="2" fill="{colour}"/>'
        yield f'<text x="{x + 15}" y="{y:.0f}" fill="currentColor" font-size="10.5">{text}</text>'
