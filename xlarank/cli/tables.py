"""Tables that fit the window: a grid if it is wide enough, else groups, else ``key: value`` pairs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table

#: Narrower than this a column of prose is no longer worth reading.
_PROSE: Final = 20
#: Cells between columns.
_GAP: Final = 2


def new_table(*heads: str) -> Table:
    """Return an empty table; a head that starts with > is aligned right, one that starts with ~ is prose.

    Prose may take several lines; everything else is shown whole. The first column names the row.
    """
    return _grid(
        Column(head.lstrip(">~"), justify="right" if head[0] == ">" else "left", no_wrap=head[0] != "~")
        for head in heads
    )


def print_table(table: Table, console: Console) -> None:
    """Show a table as a grid; in a window too narrow for it by groups of equal first cells, or as blocks."""
    first, *others = table.columns
    for column in table.columns:
        column.min_width = _least(column)
    if fits(table, console.width):
        console.print(table)
        return
    grouped = first.justify == "left" and _width(others) <= console.width
    rows = zip(table.rows, *(column.cells for column in table.columns), strict=True)
    for number, (name, group) in enumerate(groupby(rows, key=lambda row: str(row[1]))):
        if grouped:
            part = _grid((column.copy() for column in others), head=number == 0)
            for row, _, *cells in group:
                part.add_row(*cells, style=row.style)
            console.print(name, highlight=False, soft_wrap=True)
            console.print(part)
            continue
        for row, _, *cells in group:
            pairs = [f"{column.header}: {cell}" for column, cell in zip(others, cells, strict=True) if cell]
            text = block(f"{first.header}: {name}" if first.justify == "right" else name, pairs, console.width)
            console.print(text, style=row.style, highlight=False, soft_wrap=True)


def fits(table: Table, width: int) -> bool:
    return _width(table.columns) <= width


def block(name: str, pairs: Iterable[str], width: int) -> str:
    """Return one row as lines: its name, then ``key: value`` pairs, as many a line as fit.

    >>> print(block("tile:cpu", ["graphs: 30", "rows: 1,920", "why: these are more words than fit"], 30))
    tile:cpu
      graphs: 30  rows: 1,920
      why: these are more words
        than fit
    """
    # a pair that fits a line is not broken, a longer one has lines of its own
    kept = [pair.replace(" ", "\xa0") if cell_len(pair) + 2 <= width else f"\n{pair}\n" for pair in pairs]
    lines = [name]
    for text in "  ".join(kept).splitlines():
        indent = "  " if "\xa0" in text else "    "
        lines += textwrap.wrap(text.strip(" "), width, initial_indent="  ", subsequent_indent=indent,
                               break_long_words=False, break_on_hyphens=False)  # fmt: skip
    return "\n".join(lines).replace("\xa0", " ")


def _grid(columns: Iterable[Column], head: bool = True) -> Table:
    return Table(*columns, box=box.SIMPLE_HEAD if head else box.SIMPLE, show_header=head, show_edge=False,
                 pad_edge=False, padding=(0, 1, 0, 0))  # fmt: skip


def _least(column: Column) -> int:
    """Return the least width of a column in cells; prose wraps between words."""
    texts = [str(column.header), *map(str, column.cells)]
    most = max(map(cell_len, texts))
    words = (cell_len(word) for text in texts for word in text.split())
    return most if column.no_wrap else max([min(most, _PROSE), *words])


def _width(columns: Sequence[Column]) -> int:
    return sum(_least(column) + _GAP for column in columns) - _GAP
