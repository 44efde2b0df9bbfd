"""Charts and pictures as SVG, without scripts or fonts, in the colours of the page around them,
light or dark.

They are drawn by matplotlib: a library that draws in the browser would put its script into every
page.
"""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import networkx as nx
import numpy as np

from xlarank.data.errors import XlarankError
from xlarank.data.files import atomic_write
from xlarank.data.graph import Graph, LayoutGraph
from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.meanings import default_layout_text, describe_node, order_text
from xlarank.models.arrays import Floats, Integers
from xlarank.models.model import RULE
from xlarank.pipelines.ranking.score_difference import Explanation, program_graph, set_layouts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Places = Mapping[int, tuple[float, float]]

INK = "#010203"
SOFT = "#040506"
LINE = "#070809"
PAGE = "#0a0b0c"
#: Placeholder colours -> their replacements in a page, and on white.
_COLOURS: Final = {
    INK: ("currentColor", "#1c2733"),
    SOFT: ("var(--soft)", "#5c6a79"),
    LINE: ("var(--line)", "#dfe4ea"),
    PAGE: ("var(--page)", "#ffffff"),
}
_STYLE: Final[Any] = {
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "axes.titlecolor": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "axes.facecolor": "none",
}
#: Distinguishable by the colour-blind, readable on white and on near black (after Okabe and Ito).
BLUE = "#3b82c4"
ORANGE = "#d9822b"
GREEN = "#2f9e77"
PURPLE = "#b06ab3"
_SERIES: Final = (BLUE, ORANGE, GREEN, PURPLE)
#: Eleven and four have no common factor: up to 44 series differ in marker or colour.
_MARKERS: Final = "os^DvP*X<>p"
#: End of the name of the ranking that `rank` uses.
IN_USE: Final = " (ranks)"
_MAX_POINTS = 500
_MAX_NAMES = 60
#: Legend of pictures of segments: the colours of contributions and of clashing layouts.
_LEGEND: Final = {
    "makes it faster": BLUE,
    "makes it slower": ORANGE,
    "layouts that clash: a copy": "#c23b3b",
}
_FASTER, _SLOWER, _CLASH = _LEGEND.values()
#: Maximum number of nodes in total, and per row unless in the segment; maximum distance from the
#: segment in edges.
_MAX_NODES = 18
_MAX_PER_ROW = 5
_RADIUS = 2
_SWEEPS = 4
_MAX_CHARACTERS = 22
#: Distances between columns and between rows of nodes, and the width and height of a node, in
#: inches.
_COLUMN = 1.8
_ROW = 0.9
_WIDTH = 1.5
_HEIGHT = 0.48


def short(name: str, length: int = 26) -> str:
    """Return a name that fits beside a chart; its end is kept, because it distinguishes graphs of
    one program.

    >>> short("alexnet_train_batch_32_4ae805e53b8d2b8a")
    'alexnet_train…05e53b8d2b8a'
    """
    if len(name) <= length:
        return name
    return f"{name[: length // 2]}…{name[len(name) - length // 2 + 1 :]}"


@contextmanager
def _styled() -> Iterator[None]:
    """Apply `_STYLE` to all that is drawn in a block or by a decorated function."""
    import matplotlib as mpl  # slow

    with mpl.rc_context(_STYLE):
        yield


def _new_axes(width: float, height: float) -> Axes:
    """Return the axes of a new figure of this size in inches."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    # The reader's font may be larger than matplotlib's.
    padded = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    axes = Figure(figsize=(width, height), layout=padded).subplots()
    axes.grid(visible=True, linewidth=0.6)
    return axes


def _to_svg(axes: Axes, name: str) -> str:
    """Return the figure as an element of a page; ``name`` makes its ids unique."""
    import matplotlib as mpl

    stream = io.StringIO()
    figure: Any = axes.figure
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        metadata = {"Date": None, "Creator": None}
        figure.savefig(stream, format="svg", transparent=True, metadata=metadata)
    text = "<svg" + stream.getvalue().partition("<svg")[2]
    unused = r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>|<!--.*?-->"
    text = re.sub(unused, "", text, flags=re.S)
    used = set(re.findall(r"#([\w.-]+)[\"')]", text))
    text = re.sub(r' id="([\w.-]+)"', lambda match: match[0] if match[1] in used else "", text)
    text = re.sub(r"'DejaVu Sans'[^;\"]*sans-serif", "system-ui, sans-serif", text)
    size = f'role="img" style="width:100%;max-width:{figure.get_figwidth() * 122:.0f}px"'
    text = re.sub(r' (width|height)="[^"]*pt"', "", text, count=2)
    text = text.replace("<svg", f"<svg {size}", 1)
    for token, (colour, _) in _COLOURS.items():
        text = text.replace(token, colour)
    return re.sub(r"\n\s*", "\n", text)


def write_picture(path: Path, svg: str) -> None:
    """Write a chart to a file of its own."""
    with atomic_write(path) as partial:
        partial.write_text(in_fixed_colours(svg), encoding="utf-8")


def in_fixed_colours(svg: str) -> str:
    """Return a chart for a file of its own, as for a paper: dark on white, in its own size, without
    variables, which converters do not resolve.
    """
    for colour, fixed in _COLOURS.values():
        svg = svg.replace(colour, fixed)
    width, height = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0]
    svg = re.sub(r'style="[^"]*"', f'width="{width}pt" height="{height}pt"', svg, count=1)
    svg = svg.replace(">", '><rect width="100%" height="100%" fill="#ffffff"/>', 1)
    return svg.replace("system-ui, sans-serif", "sans-serif")


@_styled()
def metric_chart(
    name: str, graphs: Sequence[str], values: Mapping[str, Floats], label: str, order: Integers
) -> str:
    """Draw a mark per ranking for the first `_MAX_NAMES` graphs in ``order``.

    Rules are hollow and, unless `IN_USE`, small. Each ranking is a little lower than the one
    before, so that equal values show. Slowdowns, which begin at 0, have a logarithmic axis.
    """
    if len(order) > _MAX_NAMES:
        label += f", the worst {_MAX_NAMES} of {len(order)} graphs"
        order = order[:_MAX_NAMES]
    row = max(0.2, 0.06 * len(values))
    from matplotlib.ticker import PercentFormatter

    # The legend has two columns.
    axes = _new_axes(5.2, 0.9 + row * max(5, len(order)) + 0.1 * len(values))
    styles = enumerate(zip(values.items(), cycle(_MARKERS), cycle(_SERIES), strict=False))
    for number, ((ranking, column), marker, colour) in reversed([*styles]):
        is_rule = ranking.startswith(RULE)
        axes.plot(
            column[order],
            np.arange(len(order)) + 0.35 - 0.7 * number / max(1, len(values) - 1),
            marker,
            label=ranking,
            color=colour,
            ms=4 if is_rule and not ranking.endswith(IN_USE) else 6,
            fillstyle="none" if is_rule else "full",
        )
    if label.startswith("slowdown"):
        axes.set_xscale("symlog", linthresh=0.01, linscale=0.5)
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        label += ", lower is better"
    axes.set_yticks(range(len(order)), [short(graphs[i]) for i in order])
    axes.set(ylim=(-0.8, len(order) - 0.2), xlabel=label)
    handles, _ = axes.get_legend_handles_labels()
    axes.figure.legend(
        handles=handles[::-1], loc="outside upper left", ncols=2, frameon=False, labelcolor=INK
    )
    return _to_svg(axes, name)


@_styled()
def ranks_chart(name: str, title: str, predicted: Floats, measured: Floats) -> str:
    """Draw predicted ranks against ranks by label (0 to 1, 0 is the fastest)."""
    axes = _new_axes(2.7, 2.9)
    step = max(1, len(predicted) // _MAX_POINTS)
    axes.plot([0, 1], [0, 1], color=SOFT, linewidth=0.8)
    axes.plot(measured[::step], predicted[::step], "o", markersize=3, color=BLUE, alpha=0.6)
    axes.set(title=title, xlabel="rank by label", ylabel="predicted rank", aspect="equal")
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    return _to_svg(axes, name)


@_styled()
def bars_chart(
    name: str, bars: Iterable[tuple[str, float, str]], width: float = 5.2, **texts: str
) -> str:
    """Draw bars of label, share and note, the largest on top; ``texts`` are set on the axes."""
    bars = sorted(bars, key=lambda bar: bar[1])
    axes = _new_axes(width, max(1.4, 0.7 + 0.24 * len(bars)))
    drawn = axes.barh(
        range(len(bars)),
        [share for _, share, _ in bars],
        height=0.7,
        tick_label=[label.replace("$", r"\$") for label, _, _ in bars],  # not mathematics
        color=[ORANGE if note else BLUE for _, _, note in bars],
    )
    axes.bar_label(drawn, [f" {share:.1%}{note}" for _, share, note in bars], fontsize=8, color=INK)
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.12)
    axes.set(**texts)
    return _to_svg(axes, name)


@_styled()
def segment_picture(graph: Graph, explanation: Explanation) -> str:
    """Draw the largest segment; raises `XlarankError` if there is none."""
    from matplotlib.patches import Patch

    if not isinstance(graph, LayoutGraph) or not explanation.segments:
        got = f"{explanation.graph} has no segment to draw"
        raise XlarankError(got, expected="a layout graph with two configurations that differ")
    centres = _place_nodes(graph, explanation)
    right, bottom = (max(values) for values in zip(*centres.values(), strict=True))
    axes = _new_axes(max(4.2, right + 1.3 * _COLUMN), bottom + 1.2)
    axes.set_axis_off()
    axes.set(xlim=(-_COLUMN / 2, right + _COLUMN * 0.8), ylim=(bottom + _ROW / 2, -_ROW / 2))
    compared = f"configuration {explanation.now} against {explanation.then}"
    axes.set_title(f"{explanation.graph}\n{compared}, segment 1", parse_math=False)
    _draw_edges(axes, graph, explanation, centres)
    _draw_nodes(axes, graph, explanation, centres)
    keys = [Patch(color=colour, label=text) for text, colour in _LEGEND.items()]
    axes.figure.legend(
        handles=keys, loc="outside lower left", ncols=3, fontsize=7, frameon=False, labelcolor=INK
    )
    return _to_svg(axes, f"segment-{explanation.collection}")


def _place_nodes(graph: LayoutGraph, explanation: Explanation) -> Places:
    """Return the centres, in inches, of nodes in and around the segment, with few crossings."""
    program = program_graph(graph)
    configurable = set(graph.configurable.tolist())
    largest = next(iter(explanation.segments))
    segment = [part.node for part in explanation.nodes if part.node in largest]
    segment = segment[: _MAX_NODES * 2 // 3]  # those with the largest contributions
    undirected = program.to_undirected(as_view=True)
    distance = nx.multi_source_dijkstra_path_length(undirected, set(segment), _RADIUS)
    nearby = sorted(
        distance.keys() - segment, key=lambda node: (distance[node], node not in configurable, node)
    )
    chosen = [*segment, *nearby][:_MAX_NODES]
    part = program.subgraph(chosen)
    layer: dict[int, int] = {}
    for depth, nodes in enumerate(nx.topological_generations(part)):
        layer |= dict.fromkeys(nodes, depth)
    for node in sorted(chosen, key=lambda n: -layer[n]):
        # Place sources just above their first consumer.
        if not part.in_degree(node) and part.out_degree(node):
            layer[node] = min(layer[consumer] for consumer in part.successors(node)) - 1
    row_at = defaultdict[int, list[int]](list)
    for node in chosen:
        if node in segment or len(row_at[layer[node]]) < _MAX_PER_ROW:
            row_at[layer[node]].append(node)
    rows = [row for _, row in sorted(row_at.items())]
    x = {node: float(column) for row in rows for column, node in enumerate(sorted(row))}
    neighbours = part.subgraph(x).to_undirected()
    for row in _SWEEPS * [*rows, *reversed(rows)]:
        row.sort(key=lambda node: float(np.mean([x[n] for n in neighbours[node]] or [x[node]])))
        x.update({node: column - (len(row) - 1) / 2 for column, node in enumerate(row)})
    left = min(x.values())
    centres: dict[int, tuple[float, float]] = {}
    for y, row in enumerate(rows):
        centres |= {node: ((x[node] - left) * _COLUMN, y * _ROW) for node in row}
    return centres


def _draw_edges(axes: Axes, graph: LayoutGraph, explanation: Explanation, centres: Places) -> None:
    from matplotlib import path as paths
    from matplotlib.patches import PathPatch

    right = max(x for x, _ in centres.values()) + _COLUMN * 0.6
    now = set_layouts(graph, explanation.now)
    then = set_layouts(graph, explanation.then)
    tensors = LayoutContext(graph).slot_tensor
    requests = {}  # layouts that configurable consumers request of their operands
    for at, (node, row) in enumerate(now.items()):
        for slot in range(1, len(LAYOUT_SLOTS)):
            request = row[slot * MAX_RANK : (slot + 1) * MAX_RANK]
            requests[node, int(tensors[at, slot])] = order_text(request)
    for producer, consumer in program_graph(graph).subgraph(centres).edges:
        x1, y1 = centres[producer]
        x2, y2 = centres[consumer]
        y1 = y1 + _HEIGHT / 2
        y2 = y2 - _HEIGHT / 2
        order = _output_order(graph, now, producer)
        before = _output_order(graph, then, producer)
        requested = requests.get((consumer, producer), "")
        clash = not order.startswith(requested[:-1])
        text = f"{order} ≠ {requested}" if clash else order
        if before != order:
            text += f", was {before}"
        colour = _CLASH if clash else SOFT
        # edges that skip a row pass right of all nodes; a cubic reaches 3/4 of its control points'
        # offset
        bend = (y2 - y1) / 2
        aside = (right - (x1 + x2) / 2) / 0.75 if y2 - y1 > _ROW else 0.0
        points = [(x1, y1), (x1 + aside, y1 + bend), (x2 + aside, y2 - bend), (x2, y2)]
        curve = paths.Path(points, [1, 4, 4, 4])
        axes.add_patch(PathPatch(curve, fill=False, edgecolor=colour))
        # labels near the producer: those of one consumer's operands would overlap
        share, down = (0.5, 0.5) if aside else (0.2, 0.33)
        axes.text(
            x1 + (x2 - x1) * share + 0.75 * aside,
            y1 + (y2 - y1) * down,
            text,
            fontsize=6,
            ha="center",
            va="center",
            color=colour,
            bbox={"facecolor": PAGE, "edgecolor": "none", "pad": 0.5},
        )


def _output_order(graph: LayoutGraph, layouts: Mapping[int, Any], node: int) -> str:
    """Return the layout of a node's output as text: the one it is set to, or the default."""
    chosen = order_text(layouts[node][:MAX_RANK]) if node in layouts else ""
    return chosen or default_layout_text(graph, node)


def _draw_nodes(axes: Axes, graph: LayoutGraph, explanation: Explanation, centres: Places) -> None:
    from matplotlib.patches import FancyBboxPatch

    values = {part.node: part.value for part in explanation.nodes}
    largest = max(map(abs, values.values()))
    for node, (x, y) in centres.items():
        value = values.get(node, 0.0)
        opcode, shape = describe_node(graph, node)
        lines = [explanation.names[node].name if explanation.names else f"{opcode} {node}", shape]
        shade: Any = "none"
        if value:
            lines.append(f"{value:+.3f}")
            shade = (_FASTER if value < 0 else _SLOWER, 0.15 + 0.7 * abs(value) / largest)
        border: dict[str, Any] = {"linewidth": 0.5, "linestyle": "--"}
        if node in graph.configurable:
            border = {"linewidth": 1.2}
        corner = (x - _WIDTH / 2, y - _HEIGHT / 2)
        box = partial(FancyBboxPatch, corner, _WIDTH, _HEIGHT, "round,pad=0,rounding_size=0.06")
        # shades are translucent: edges must not show through
        axes.add_patch(box(facecolor=PAGE, edgecolor="none", **border))
        axes.add_patch(box(facecolor=shade, edgecolor=INK, **border))
        text = "\n".join(short(line, _MAX_CHARACTERS) for line in lines)
        axes.text(x, y, text, fontsize=7, ha="center", va="center", color=INK, parse_math=False)
