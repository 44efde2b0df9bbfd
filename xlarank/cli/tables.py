"""Tables that fit the window: wrapped, grouped by the first column, or as blocks."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table

#: Width in characters if the output is not a terminal.
FILE_WIDTH = 150
#: As far as a window needs: maximum width of a head, minimum width of a column of prose, maximum
#: width of a word in a first column of prose, such as the name of a graph.
_WRAPPED: Final = (
    (FILE_WIDTH, 20, FILE_WIDTH),
    (20, 20, FILE_WIDTH),
    (14, 14, FILE_WIDTH),
    (10, 10, FILE_WIDTH),
    (10, 10, 20),
)
#: Cells between columns.
_GAP = 2
_WHOLE_WORDS: Final[dict[str, Any]] = {"break_long_words": False, "break_on_hyphens": False}


def new_table(*heads: str) -> Table:
    """Return an empty table; heads with > are aligned right, those with ~ prose to be wrapped."""
    columns = []
    for head in heads:
        column = Column(head.lstrip(">~"), no_wrap=head[0] != "~", overflow="fold")
        column.justify = "right" if head[0] == ">" else "left"
        columns.append(column)
    return _grid(columns)


def print_table(table: Table, console: Console) -> None:
    """Show a table as a grid; in a narrow window wrapped, grouped by first column, or as blocks."""
    if _fit(table.columns, console.width):
        console.print(table)
        return
    first, *other_columns = table.columns
    grouped = first.justify == "left" and _fit(other_columns, console.width)
    rows = zip(table.rows, *(column.cells for column in table.columns), strict=True)
    for number, (name, group) in enumerate(groupby(rows, key=lambda row: str(row[1]))):
        if grouped:
            part = _grid((column.copy() for column in other_columns), head=number == 0)
            for row, _, *cells in group:
                part.add_row(*cells, style=row.style)
            console.print(name, highlight=False, soft_wrap=True)
            console.print(part)
            continue
        for row, _, *cells in group:
            title = f"{_head(first)}: {name}" if first.justify == "right" else name
            named = zip(map(_head, other_columns), cells, strict=True)
            text = block(title, [f"{head}: {cell}" for head, cell in named if cell], console.width)
            console.print(text, style=row.style, highlight=False, soft_wrap=True)


def block(name: str, pairs: Iterable[str], width: int) -> str:
    """Return one row as lines: its name, then ``key: value`` pairs, as many per line as fit.

    >>> print(block("tile:cpu", ["graphs: 30", "rows: 1,920",
    ...     "why: these are more words than fit"], 30))
    tile:cpu
      graphs: 30  rows: 1,920
      why: these are more words
        than fit
    """
    # a pair that fits a line is not broken, a longer one has lines of its own
    cells = []
    for pair in pairs:
        fits = cell_len(pair) + 2 <= width
        cells.append(pair.replace(" ", "\xa0") if fits else f"\n{pair}\n")
    lines = [name]
    for text in "  ".join(cells).splitlines():
        later = "  " if "\xa0" in text else "    "
        lines += textwrap.wrap(
            text.strip(" "), width, initial_indent="  ", subsequent_indent=later, **_WHOLE_WORDS
        )
    return "\n".join(lines).replace("\xa0", " ")


def _grid(columns: Iterable[Column], head: bool = True) -> Table:
    return Table(
        *columns,
        box=box.SIMPLE_HEAD if head else box.SIMPLE,
        show_header=head,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )


def _head(column: Column) -> str:
    return str(column.header).replace("\n", " ")


def _fit(
    columns: Sequence[Column], width: int, wrapped: Sequence[tuple[int, int, int]] = _WRAPPED
) -> bool:
    """Wrap heads and prose as far as needed; return whether the columns fit."""
    for head_width, prose_width, word_width in wrapped:
        widths = []
        for column in columns:
            longest = word_width if column is columns[0] else FILE_WIDTH
            widths.append(_wrap(column, head_width, prose_width, longest))
        spare = width - sum(widths) - _GAP * (len(widths) - 1)
        if spare >= 0:
            for column, least in zip(columns, widths, strict=True):
                wanted = max(map(cell_len, [_head(column), *map(str, column.cells)]))
                extra = 0 if column.no_wrap else min(spare, max(0, wanted - least))
                column.width = least + extra
                spare -= extra
            return True
    return False


def fits_unwrapped(table: Table, width: int) -> bool:
    """Return whether the columns fit, or those after a first column that names groups."""
    first, *other_columns = table.columns
    unwrapped = _WRAPPED[:1]
    if _fit(table.columns, width, unwrapped):
        return True
    return first.no_wrap and _fit(other_columns, width, unwrapped)


def _wrap(column: Column, head_width: int, prose_width: int, word_width: int) -> int:
    """Wrap a column's head, return its minimum width in cells; prose breaks longer words."""
    texts = [*map(str, column.cells)]
    width = max(map(cell_len, texts), default=0)
    if not column.no_wrap:
        word = max(map(cell_len, " ".join(texts).split()), default=0)
        width = max(min(width, prose_width), min(word, word_width))
    lines = textwrap.wrap(_head(column), max(width, head_width), **_WHOLE_WORDS)
    column.header = "\n".join(lines)
    return max([width, *map(cell_len, lines)])


def plain(text: str) -> str:
    """Return text with control characters escaped: a file name must not forge output."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
