"""Charts and pictures as SVG, without scripts or fonts, in the colours of the page around them,
light or dark.

They are drawn by matplotlib: a library that draws in the browser would put its script into every
page.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from xlarank.models.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#010203"
SOFT = "#040506"
LINE = "#070809"
#: Placeholder colours -> their replacements in a page.
_COLOURS: Final = {INK: "currentColor", SOFT: "var(--soft)", LINE: "var(--line)"}
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
#: Distinguishable by the colour-blind, readable on white and on near black.
BLUE = "#3b82c4"
ORANGE = "#d9822b"
_MAX_POINTS = 500


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
    for token, colour in _COLOURS.items():
        text = text.replace(token, colour)
    return re.sub(r"\n\s*", "\n", text)


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
