"""Charts as SVG in the colours of the page around it: light or dark, without scripts or fonts.

matplotlib draws them when the page is written: a library for the browser would put its script into every page.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

INK, SOFT, LINE, PAGE = "#010203", "#040506", "#070809", "#0a0b0c"
#: Placeholder colours -> their replacements in a page, and on white.
_COLOURS: Final = {
    INK: ("currentColor", "#1c2733"), SOFT: ("var(--soft)", "#5c6a79"), LINE: ("var(--line)", "#dfe4ea"),
    PAGE: ("var(--page)", "#ffffff"),
}  # fmt: skip
_STYLE: Final[Any] = {
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": SOFT, "axes.titlecolor": INK,
    "xtick.color": SOFT, "ytick.color": SOFT, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "grid.color": LINE, "axes.spines.top": False, "axes.spines.right": False, "font.size": 9.0,
    "axes.titlesize": 10.0, "axes.axisbelow": True, "legend.frameon": False, "axes.facecolor": "none",
}  # fmt: skip
#: Distinguishable by the colour-blind, readable on white and on near black (after Okabe and Ito).
BLUE, ORANGE, GREEN, PURPLE = "#3b82c4", "#d9822b", "#2f9e77", "#b06ab3"
_SERIES: Final = (BLUE, ORANGE, GREEN, PURPLE)
#: Eleven and four have no common factor: up to 44 series differ in marker or colour.
_MARKERS: Final = "os^DvP*X<>p"
_MOST_POINTS, _MOST_NAMES = 500, 60


def short(name: str, most: int = 26) -> str:
    """Return a name that fits beside a chart, with its end, which tells graphs of one program apart.

    >>> short("alexnet_train_batch_32_4ae805e53b8d2b8a")
    'alexnet_train…05e53b8d2b8a'
    """
    return name if len(name) <= most else f"{name[: most // 2]}…{name[len(name) - most // 2 + 1 :]}"


def new_axes(width: float, height: float) -> Axes:
    """Return the axes of a new figure of this size in inches."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        engine: Any = figure.get_layout_engine()
        engine.set(w_pad=0.1, h_pad=0.1)  # the reader's font may be larger than the one that was measured with
        axes = figure.subplots()
        axes.grid(visible=True, linewidth=0.6)
    return axes


def to_svg(axes: Axes, name: str) -> str:
    """Return the figure as an element of a page; ``name`` makes its ids unique."""
    import matplotlib as mpl

    stream = io.StringIO()
    figure: Any = axes.figure
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = "<svg" + stream.getvalue().partition("<svg")[2]
    drawn_by = r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>|<!--.*?-->"
    text = re.sub(drawn_by, "", text, flags=re.S)
    used = set(re.findall(r"#([\w.-]+)[\"')]", text))
    text = re.sub(r' id="([\w.-]+)"', lambda match: match[0] if match[1] in used else "", text)
    text = re.sub(r"'DejaVu Sans'[^;\"]*sans-serif", "system-ui, sans-serif", text)
    size = f'role="img" style="width:100%;max-width:{figure.get_figwidth() * 122:.0f}px"'
    text = re.sub(r' (width|height)="[^"]*pt"', "", text, count=2).replace("<svg", f"<svg {size}", 1)
    for token, (colour, _) in _COLOURS.items():
        text = text.replace(token, colour)
    return re.sub(r"\n\s*", "\n", text)


def in_fixed_colours(svg: str) -> str:
    """Return a chart for a file of its own, dark on white."""
    for colour, fixed in _COLOURS.values():
        svg = svg.replace(colour, fixed)
    return svg.replace('style="', 'style="background:#ffffff;', 1)


def scores_chart(name: str, graphs: Sequence[str], values: Mapping[str, Floats], label: str) -> str:
    """Draw a line for each graph with a mark for each ranking; the model is the first of ``values``."""
    order = np.argsort(next(iter(values.values())))[-_MOST_NAMES:]
    axes = new_axes(5.2, max(1.9, 0.9 + 0.2 * len(order)))
    for number, (ranking, column) in reversed([*enumerate(values.items())]):
        marker, colour = _MARKERS[number % len(_MARKERS)], _SERIES[number % len(_SERIES)]
        size, alpha = (4, 0.75) if number else (6, 1.0)
        axes.plot(
            column[order], range(len(order)), marker, label=ranking, color=colour, markersize=size, alpha=alpha
        )
    axes.set_yticks(range(len(order)), [short(graphs[i]) for i in order])
    axes.set(ylim=(-0.8, len(order) - 0.2), xlabel=label)
    handles, labels = axes.get_legend_handles_labels()
    axes.figure.legend(
        handles[::-1], labels[::-1], loc="outside upper left", ncols=2, frameon=False, labelcolor=INK
    )
    return to_svg(axes, name)


def ranks_chart(name: str, title: str, predicted: Floats, measured: Floats) -> str:
    """Draw predicted ranks against ranks by label (0 to 1, 0 is the fastest)."""
    axes = new_axes(2.7, 2.9)
    step = max(1, len(predicted) // _MOST_POINTS)
    axes.plot([0, 1], [0, 1], color=SOFT, linewidth=0.8)
    axes.plot(measured[::step], predicted[::step], "o", markersize=3, color=BLUE, alpha=0.6)
    axes.set(title=title, xlabel="rank by label", ylabel="predicted rank", aspect="equal")
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    return to_svg(axes, name)


def bars_chart(name: str, bars: Iterable[tuple[str, float, str]], width: float = 5.2, **texts: str) -> str:
    """Draw shares as horizontal bars, the largest on top, each with its label and note.

    Bars with a note are highlighted. ``texts`` are those of the axes, such as ``title``.
    """
    bars = sorted(bars, key=lambda bar: bar[1])
    axes = new_axes(width, max(1.4, 0.7 + 0.24 * len(bars)))
    drawn = axes.barh(
        range(len(bars)), [share for _, share, _ in bars], height=0.7,
        tick_label=[label.replace("$", r"\$") for label, _, _ in bars],  # not mathematics
        color=[ORANGE if note else BLUE for _, _, note in bars],
    )  # fmt: skip
    axes.bar_label(drawn, [f" {share:.1%}{note}" for _, share, note in bars], fontsize=8, color=INK)
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.12)
    axes.set(**texts)
    return to_svg(axes, name)
