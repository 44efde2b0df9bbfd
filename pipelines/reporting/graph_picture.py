"""Drawing of a program segment: operands above consumers, layouts on edges, contributions as colours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import XlarankError
from xlarank.data.graph import Graph, LayoutGraph
from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.meanings import default_layout_text, describe_node
from xlarank.pipelines.ranking.score_difference import Explanation, program_graph, set_layouts

#: Colours legible on light and dark pages and for colour-blind readers.
FASTER, SLOWER, CLASH = "#2f6db5", "#d9822b", "#c23b3b"
#: Maximum number of nodes in total and, outside the segment, per row; maximum distance from the segment in edges.
_MOST_NODES, _MOST_ABREAST, _REACH = 18, 5, 2
_BOX, _HIGH, _GAP, _LAYER, _CHARACTERS, _SWEEPS = 158.0, 44.0, 44.0, 92.0, 22, 4
#: Style of a stand-alone picture.
_STYLE: Final = (
    "<style>svg{color:#1f2d3d;background:#fff;--page:#fff}"
    "@media (prefers-color-scheme:dark){svg{color:#e3e8ee;background:#14181d;--page:#14181d}}</style>\n"
)

Places = Mapping[int, tuple[float, float]]


def segment_picture(graph: Graph, explanation: Explanation, *, alone: bool = True) -> str:
    """Draw the largest segment as SVG, ``alone`` or styled by its page; raises `XlarankError` if there is none."""
    if not isinstance(graph, LayoutGraph) or not explanation.segments:
        got = f"{explanation.graph} has no segment to draw"
        raise XlarankError(got, expected="a layout graph with two configurations that differ")
    centres = _placed(graph, explanation)
    width, height = max(460.0, max(x for x, _ in centres.values()) + _BOX), max(y for _, y in centres.values()) + 62
    title = f"{explanation.graph}: configuration {explanation.now} against {explanation.then}, segment 1"
    legend = ((FASTER, "makes it faster"), (SLOWER, "makes it slower"), (CLASH, "layouts that clash: a copy"))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'style="max-width:{width:.0f}px;width:100%" font-family="Helvetica, Arial, sans-serif" font-size="11">'
        f"<title>{escape(title)}</title>{_STYLE if alone else ''}",
        f'<text x="12" y="20" font-size="13" font-weight="bold" fill="currentColor">{escape(title)}</text>',
        *_edges(graph, explanation, centres),
        *_nodes(graph, explanation, centres),
    ]
    for at, (colour, text) in enumerate(legend):
        x, y = 12 + 125 * at, height - 14
        parts.append(f'<rect x="{x}" y="{y - 9:.0f}" width="10" height="10" rx="2" fill="{colour}"/>')
        parts.append(f'<text x="{x + 15}" y="{y:.0f}" fill="currentColor" font-size="10.5">{text}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _placed(graph: LayoutGraph, explanation: Explanation) -> dict[int, tuple[float, float]]:
    """Lay out the nodes in and around the segment with few crossings, and return their centres."""
    program, configurable = program_graph(graph), set(graph.configurable.tolist())
    segment = [part.node for part in explanation.nodes if part.node in explanation.segments[0].nodes]
    segment = segment[: _MOST_NODES * 2 // 3]  # those with the largest contributions
    distance = nx.multi_source_dijkstra_path_length(program.to_undirected(as_view=True), set(segment), _REACH)
    around = sorted(distance.keys() - segment, key=lambda node: (distance[node], node not in configurable, node))
    chosen = [*segment, *around][:_MOST_NODES]
    part = program.subgraph(chosen)
    layer = {node: depth for depth, nodes in enumerate(nx.topological_generations(part)) for node in nodes}
    for node in sorted(chosen, key=lambda n: -layer[n]):
        if not part.in_degree(node) and (below := [layer[consumer] for consumer in part.successors(node)]):
            layer[node] = min(below) - 1  # place sources just above their first consumer
    rows = defaultdict[int, list[int]](list)
    for node in chosen:
        if node in segment or len(rows[layer[node]]) < _MOST_ABREAST:
            rows[layer[node]].append(node)
    x = {node: float(column) for row in rows.values() for column, node in enumerate(sorted(row))}
    beside = part.subgraph(x).to_undirected()
    for depth in _SWEEPS * [*sorted(rows), *sorted(rows, reverse=True)]:
        rows[depth].sort(key=lambda node: float(np.mean([x[n] for n in beside[node]] or [x[node]])))
        x.update({node: column - (len(rows[depth]) - 1) / 2 for column, node in enumerate(rows[depth])})
    left = min(x.values())
    return {
        node: ((x[node] - left) * (_BOX + _GAP) + _BOX / 2 + 12, 62 + number * _LAYER)
        for number, depth in enumerate(sorted(rows))
        for node in rows[depth]
    }


def _edges(graph: LayoutGraph, explanation: Explanation, centres: Places) -> Iterator[str]:
    now, then = set_layouts(graph, explanation.now), set_layouts(graph, explanation.then)
    tensors = LayoutContext(graph).slot_tensor
    wanted = {  # layouts that configurable consumers request of their operands
        (node, int(tensors[at, slot])): _text(row[slot * MAX_RANK : (slot + 1) * MAX_RANK])
        for at, (node, row) in enumerate(now.items())
        for slot in range(1, len(LAYOUT_SLOTS))
    }
    right = max(x for x, _ in centres.values()) + _BOX / 2 + 40
    for producer, consumer in program_graph(graph).subgraph(centres).edges:
        (x1, y1), (x2, y2) = centres[producer], centres[consumer]
        y1, y2 = y1 + _HIGH / 2, y2 - _HIGH / 2
        made, before = (
            (_text(rows[producer][:MAX_RANK]) if producer in rows else "") or default_layout_text(graph, producer)
            for rows in (now, then)
        )
        wish = wanted.get((consumer, producer), "")
        clash = not made.startswith(wish[:-1])
        text = made + (f" ≠ {wish}" if clash else "") + (f", was {before}" if before != made else "")
        colour, opacity = (CLASH, 0.9) if clash else ("currentColor", 0.45)
        # edges that skip a layer pass right of all nodes; a cubic reaches 3/4 of its control points' offset
        bend, aside = (y2 - y1) / 2, (right - (x1 + x2) / 2) / 0.75 if y2 - y1 > _LAYER else 0.0
        yield (
            f'<path d="M{x1:.0f},{y1:.0f}C{x1 + aside:.0f},{y1 + bend:.0f} {x2 + aside:.0f},{y2 - bend:.0f} '
            f'{x2:.0f},{y2:.0f}" fill="none" stroke="{colour}" stroke-opacity="{opacity}" stroke-width="1.3"/>'
            f'<text x="{(x1 + x2) / 2 + 0.75 * aside:.0f}" y="{(y1 + y2) / 2 + 3:.0f}" font-size="9.5" '
            f'text-anchor="middle" fill="{colour}" paint-order="stroke" stroke="var(--page,#fff)" '
            f'stroke-width="4">{escape(text)}</text>'
        )


def _text(layout: NDArray[Any]) -> str:
    return f"{{{','.join(str(int(d)) for d in layout if d >= 0)}}}" if (layout >= 0).any() else ""


def _nodes(graph: LayoutGraph, explanation: Explanation, centres: Places) -> Iterator[str]:
    values = {part.node: part.value for part in explanation.nodes}
    largest = max(abs(value) for value in values.values())
    configurable = set(graph.configurable.tolist())
    for node, (x, y) in centres.items():
        value, text = values.get(node, 0.0), describe_node(graph, node)
        name = f" {explanation.names[node].name}" if explanation.names else ""
        lines = [name.strip() or f"{text.opcode} {node}", text.shape, *([f"{value:+.3f}"] if value else [])]
        box = f'x="{x - _BOX / 2:.0f}" y="{y - _HIGH / 2:.0f}" width="{_BOX:.0f}" height="{_HIGH:.0f}" rx="6"'
        stroke = 'stroke-width="1.6"' if node in configurable else 'stroke-width="0.7" stroke-dasharray="4 3"'
        strength = 0.15 + 0.7 * abs(value) / largest if value else 0.0
        said = f"node {node}{name}: {text}" + (f", contributes {value:+.4f}" if value else "")
        yield (
            f'<g><title>{escape(said)}</title><rect {box} fill="var(--page,#fff)"/><rect {box} {stroke} '
            f'fill="{FASTER if value < 0 else SLOWER}" fill-opacity="{strength:.2f}" stroke="currentColor"/>'
        )
        for at, line in enumerate(lines):
            shown = line if len(line) <= _CHARACTERS else f"{line[: _CHARACTERS - 1]}…"
            weight = "normal" if at else "bold"
            yield (
                f'<text x="{x:.0f}" y="{y + 11 - 7 * len(lines) + 14 * at:.0f}" text-anchor="middle" '
                f'fill="currentColor" font-weight="{weight}">{escape(shown)}</text>'
            )
        yield "</g>"
