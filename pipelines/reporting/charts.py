"""Charts as SVG that takes its colours from the page around it: light, dark, no script, no fonts of its own.

matplotlib draws them once, when the page is written. A library that draws in the browser would bring all of its
script into every page; what a reader wants to turn here is a table, not an axis.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import XlarankError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

#: Colours that the page replaces by its own; nothing else may be drawn in them.
_INK, _SOFT, _LINE = "#010203", "#040506", "#070809"
_TOKENS: Final = {_INK: "currentColor", _SOFT: "var(--soft)", _LINE: "var(--line)"}
#: What stands for them outside a page of ours, on white.
_FIXED: Final = {"currentColor": "#1c2733", "var(--soft)": "#5c6a79", "var(--line)": "#dfe4ea"}
#: Told apart by the colour-blind, readable on white and on near black (after Okabe and Ito).
BLUE, ORANGE, GREEN, PURPLE = "#3b82c4", "#d9822b", "#2f9e77", "#b06ab3"
_MOST_POINTS: Final = 500
_MOST_NAMES: Final = 60


def short(name: str, most: int = 26) -> str:
    """A name that fits beside a chart: its end tells graphs of one program apart.

    >>> short("alexnet_train_batch_32_4ae805e53b8d2b8a")
    'alexnet_train…05e53b8d2b8a'
    """
    return name if len(name) <= most else f"{name[: most // 2]}…{name[len(name) - most // 2 + 1 :]}"


def _figure(width: float, height: float, panels: int = 1) -> tuple[Figure, list[Axes]]:
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise XlarankError(
            f"the report needs matplotlib ({error})",
            expected="matplotlib 3.8 or newer",
            do="pip install 'xlarank[report]'",
        ) from error
    own: Any = {
        "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": _SOFT, "axes.titlecolor": _INK,
        "xtick.color": _SOFT, "ytick.color": _SOFT, "xtick.labelcolor": _INK, "ytick.labelcolor": _INK,
        "grid.color": _LINE, "axes.spines.top": False, "axes.spines.right": False, "font.size": 9.0,
        "axes.titlesize": 10.0, "axes.axisbelow": True, "legend.frameon": False, "axes.facecolor": "none",
    }  # fmt: skip
    with mpl.rc_context(own):
        figure = Figure(figsize=(width, height), layout="constrained")
        engine: Any = figure.get_layout_engine()
        engine.set(w_pad=0.1, h_pad=0.1)  # the reader's font may be larger than the one that was measured with
        axes = figure.subplots(1, panels, squeeze=False)[0]
        for one in axes:
            one.grid(visible=True, linewidth=0.6)
    return figure, list(axes)


def _svg(figure: Figure, name: str) -> str:
    """The figure as an element of a page; ``name`` keeps its ids apart from those of others."""
    import matplotlib as mpl

    stream = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    used = set(re.findall(r"#([\w.-]+)[\"')]", text))
    text = re.sub(r' id="([\w.-]+)"', lambda found: found[0] if found[1] in used else "", text)
    text = re.sub(r"'DejaVu Sans'[^;\"]*sans-serif", "system-ui, sans-serif", text)
    width = re.search(r'viewBox="0 0 ([\d.]+)', text)
    size = f"width:100%;max-width:{float(width[1]) * 1.7:.0f}px" if width else "width:100%"
    text = re.sub(r'<svg ([^>]*?)width="[^"]*"', r"<svg \1", text, count=1)
    text = re.sub(r'<svg ([^>]*?)height="[^"]*"', rf'<svg role="img" style="{size}" \1', text, count=1)
    for token, colour in _TOKENS.items():
        text = text.replace(token, colour)
    return re.sub(r"\n\s*", "\n", text)


def in_fixed_colours(svg: str) -> str:
    """A chart that stands alone, dark on white, where there is no page to take colours from."""
    for token, colour in _FIXED.items():
        svg = svg.replace(token, colour)
    return svg.replace('style="', 'style="background:#ffffff;', 1)


def scores_chart(name: str, graphs: Sequence[str], values: Mapping[str, Sequence[float]], label: str) -> str:
    """One line a graph, one mark a ranking: the model (first of ``values``) beside what needs none."""
    first = np.array(next(iter(values.values())))
    order = np.argsort(first)[-_MOST_NAMES:]
    figure, (axes,) = _figure(5.2, max(1.9, 0.9 + 0.2 * len(order)))
    colours = (BLUE, ORANGE, GREEN, PURPLE)
    marks = ("o", "s", "^", "D")
    height = np.arange(len(order))
    for number, (what, column) in reversed(list(enumerate(values.items()))):
        axes.plot(
            np.array(column)[order], height, linestyle="none", marker=marks[number % 4], label=what,
            color=colours[number % 4], markersize=6 if number == 0 else 4, alpha=1.0 if number == 0 else 0.75,
        )  # fmt: skip
    axes.set_yticks(height, [short(graphs[i]) for i in order])
    axes.set_ylim(-0.8, len(order) - 0.2)
    axes.set_xlabel(label)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside upper left", ncols=2, frameon=False, labelcolor=_INK)
    return _svg(figure, name)


def ranks_chart(name: str, panels: Sequence[tuple[str, Floats, Floats]]) -> str:
    """Predicted rank against that by label (both 0 to 1, 0 is the fastest) of some graphs, side by side.

    A label may be a measurement or an estimate; the page says which.
    """
    figure, axes = _figure(2.7 * len(panels), 2.9, len(panels))
    for one, (title, predicted, measured) in zip(axes, panels, strict=True):
        step = max(1, len(predicted) // _MOST_POINTS)
        one.plot([0, 1], [0, 1], color=_SOFT, linewidth=0.8)
        one.plot(
            measured[::step], predicted[::step], linestyle="none", marker="o", markersize=3, color=BLUE, alpha=0.6
        )
        one.set_title(title)
        one.set_xlabel("rank by label")
        one.set_xlim(-0.03, 1.03)
        one.set_ylim(-0.03, 1.03)
        one.set_aspect("equal")
    axes[0].set_ylabel("predicted rank")
    return _svg(figure, name)


def bars_chart(name: str, values: Mapping[str, float], label: str) -> str:
    """Shares as horizontal bars, the largest on top."""
    items = sorted(values.items(), key=lambda item: item[1])
    figure, (axes,) = _figure(5.2, 0.7 + 0.24 * len(items))
    axes.barh([key for key, _ in items], [value for _, value in items], color=BLUE, height=0.7)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(label)
    for place, (_, value) in enumerate(items):
        axes.text(value, place, f" {value:.1%}", va="center", fontsize=8, color=_INK)
    axes.margins(x=0.12)
    return _svg(figure, name)
