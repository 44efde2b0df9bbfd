"""Charts of a page as embedded SVG images.

They are drawn by matplotlib: a library that draws in the browser would put its script into every
page.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xlarank.models.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_POINTS = 500


def _new_axes(width: float, height: float) -> Axes:
    """Return the axes of a new figure of this size in inches."""
    from matplotlib.figure import Figure  # slow

    axes = Figure(figsize=(width, height), layout="constrained").subplots()
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _to_image(axes: Axes) -> str:
    """Return the figure as an element of a page; equal figures give equal texts."""
    import matplotlib as mpl

    stream = io.BytesIO()
    figure: Any = axes.figure
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "xlarank"}):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    content = base64.b64encode(stream.getvalue()).decode("ascii")
    width = round(figure.get_figwidth() * 122)
    return f'<img alt="" width="{width}" src="data:image/svg+xml;base64,{content}"/>'


def ranks_chart(title: str, predicted: Floats, measured: Floats) -> str:
    """Draw predicted ranks against ranks by label (0 to 1, 0 is the fastest)."""
    axes = _new_axes(2.7, 2.9)
    step = max(1, len(predicted) // _MAX_POINTS)
    axes.grid(linewidth=0.6)
    axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
    axes.plot(measured[::step], predicted[::step], "o", markersize=3, alpha=0.6)
    axes.set_title(title, fontsize=10, parse_math=False)
    axes.set(xlabel="rank by label", ylabel="predicted rank", aspect="equal")
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    return _to_image(axes)


def bars_chart(shares: Mapping[str, float], xlabel: str) -> str:
    """Draw a bar for each share, the largest on top."""
    ascending = dict(sorted(shares.items(), key=lambda item: item[1]))
    axes = _new_axes(5.2, max(1.4, 0.7 + 0.24 * len(shares)))
    bars = axes.barh([*ascending], [*ascending.values()], height=0.7)
    axes.bar_label(bars, fmt=" {:.1%}", fontsize=8)
    axes.margins(x=0.12)
    axes.set_xlabel(xlabel)
    return _to_image(axes)
