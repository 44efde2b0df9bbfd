"""Drawing of a program segment: operands above consumers, layouts on edges, contributions as colours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import networkx as nx
import numpy as np

from xlarank.data.errors import XlarankError
from xlarank.data.graph import Graph, LayoutGraph
from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.meanings import default_layout_text, describe_node, order_text
from xlarank.pipelines.ranking.score_difference import Explanation, program_graph, set_layouts
from xlarank.pipelines.reporting.charts import BLUE, INK, ORANGE, PAGE, SOFT, new_axes, short, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Colours of contributions and of layouts that clash.
_LEGEND: Final = {"makes it faster": BLUE, "makes it slower": ORANGE, "layouts that clash: a copy": "#c23b3b"}
_FASTER, _SLOWER, _CLASH = _LEGEND.values()
#: Maximum number of nodes in total and, outside the segment, per row; maximum distance from the segment in edges.
_MOST_NODES, _MOST_ABREAST, _REACH = 18, 5, 2
_SWEEPS, _CHARACTERS = 4, 22
#: Distance of nodes and of rows in inches, and height of a node.
_COLUMN, _ROW, _HIGH = 1.7, 0.8, 0.42
#: Style of a stand-alone picture.
_STYLE: Final = (
    "<style>svg{color:#1f2d3d;background:#fff;--page:#fff;--soft:#5c6a79}@media (prefers-color-scheme:dark)"
    "{svg{color:#e3e8ee;background:#14181d;--page:#14181d;--soft:#97a4b1}}</style>\n"
)

Places = Mapping[int, tuple[float, float]]


def segment_picture(graph: Graph, explanation: Explanation, *, alone: bool = True) -> str:
    """Draw the largest segment as SVG, ``alone`` or styled by its page; raises `XlarankError` if there is none."""
    from matplotlib.patches import Patch

    if not isinstance(graph, LayoutGraph) or not explanation.segments:
        got = f"{explanation.graph} has no segment to draw"
        raise XlarankError(got, expected="a layout graph with two configurations that differ")
    centres = _placed(graph, explanation)
    right, low = (max(values) for values in zip(*centres.values(), strict=True))
    axes = new_axes(max(4.2, right + _COLUMN), low + 1.2)
    axes.set_axis_off()
    axes.set(xlim=(-_COLUMN / 2, right + _COLUMN / 2), ylim=(low + _ROW / 2, -_ROW / 2))
    title = f"{explanation.graph}\nconfiguration {explanation.now} against {explanation.then}, segment 1"
    axes.set_title(title, parse_math=False)
    _draw_edges(axes, graph, explanation, centres)
    _draw_nodes(axes, graph, explanation, centres)
    handles = [Patch(color=colour, label=text) for text, colour in _LEGEND.items()]
    axes.figure.legend(
        handles=handles, loc="outside lower left", ncols=3, fontsize=7, frameon=False, labelcolor=INK
    )
    svg = to_svg(axes, f"segment-{explanation.collection}")
    return svg.replace(">", f">{_STYLE}", 1) if alone else svg


def _placed(graph: LayoutGraph, explanation: Explanation) -> Places:
    """Lay out the nodes in and around the segment with few crossings, and return their centres in inches."""
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
        node: ((x[node] - left) * _COLUMN, number * _ROW)
        for number, depth in enumerate(sorted(rows))
        for node in rows[depth]
    }


def _draw_edges(axes: Axes, graph: LayoutGraph, explanation: Explanation, centres: Places) -> None:
    now, then = set_layouts(graph, explanation.now), set_layouts(graph, explanation.then)
    tensors = LayoutContext(graph).slot_tensor
    requests = {  # layouts that configurable consumers request of their operands
        (node, int(tensors[at, slot])): order_text(row[slot * MAX_RANK : (slot + 1) * MAX_RANK])
        for at, (node, row) in enumerate(now.items())
        for slot in range(1, len(LAYOUT_SLOTS))
    }
    for producer, consumer in program_graph(graph).subgraph(centres).edges:
        (x1, y1), (x2, y2) = centres[producer], centres[consumer]
        y1, y2 = y1 + _HIGH / 2, y2 - _HIGH / 2
        made, before = (
            (order_text(rows[producer][:MAX_RANK]) if producer in rows else "")
            or default_layout_text(graph, producer)
            for rows in (now, then)
        )
        requested = requests.get((consumer, producer), "")
        clash = not made.startswith(requested[:-1])
        text = made + (f" ≠ {requested}" if clash else "") + (f", was {before}" if before != made else "")
        bend = 0.4 if y2 - y1 > _ROW else 0.0  # edges that skip a row pass beside its nodes
        line = {"arrowstyle": "-", "connectionstyle": f"arc3,rad={-bend}", "color": _CLASH if clash else SOFT}
        axes.annotate("", (x2, y2), (x1, y1), arrowprops=line)
        middle = (x1 + x2 + bend * (y2 - y1)) / 2, (y1 + y2 - bend * (x2 - x1)) / 2
        axes.text(*middle, text, color=_CLASH if clash else INK, fontsize=6, ha="center", va="center",
                  bbox={"facecolor": PAGE, "edgecolor": "none", "pad": 1})  # fmt: skip


def _draw_nodes(axes: Axes, graph: LayoutGraph, explanation: Explanation, centres: Places) -> None:
    values = {part.node: part.value for part in explanation.nodes}
    largest = max(abs(value) for value in values.values())
    for node, (x, y) in centres.items():
        value, (opcode, shape) = values.get(node, 0.0), describe_node(graph, node)
        name = explanation.names[node].name if explanation.names else f"{opcode} {node}"
        lines = [name, shape, *([f"{value:+.3f}"] if value else [])]
        face = (_FASTER if value < 0 else _SLOWER, 0.15 + 0.7 * abs(value) / largest) if value else PAGE
        border = {"linewidth": 1.2} if node in graph.configurable else {"linewidth": 0.5, "linestyle": "--"}
        box = {"boxstyle": "round", "facecolor": face, "edgecolor": INK, **border}
        text = "\n".join(short(line, _CHARACTERS) for line in lines)
        axes.text(x, y, text, fontsize=7, ha="center", va="center", parse_math=False, bbox=box)
