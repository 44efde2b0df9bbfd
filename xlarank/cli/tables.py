"""Tables that fit the window: wrapped, grouped by the first column, or as blocks."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

#: Cells by head; a head with > is aligned right, one with ~ is of prose, which may be wrapped.
#: An empty row is a rule.
Row = Mapping[str, str]
#: Width in characters if the output is not a terminal.
FILE_WIDTH = 150
#: Limits of wrapping, in a wide window and in a narrow one: minimum width of a head and of a column
#: of prose, and the width beyond which a word, such as the name of a graph, is folded.
_WIDE: Final = (FILE_WIDTH, 20, FILE_WIDTH)
_NARROW: Final = (10, 10, 30)
#: Cells between columns.
_GAP = 2
_WHOLE_WORDS: Final[dict[str, Any]] = {"break_long_words": False, "break_on_hyphens": False}


def print_rows(rows: Sequence[Row], console: Console, *, extra: int = 0) -> None:
    """Print rows as a grid without empty columns; in a narrow window wrapped, grouped by the first
    column, or as blocks.

    Up to ``extra`` of the last columns are left out rather than heads wrapped.
    """
    filled = [row for row in rows if row]
    heads = [head for head in filled[0] if any(row[head] for row in filled)] if filled else []
    columns = {head: [row[head] for row in filled] for head in heads}
    while extra and columns and not _fits_wide(columns, console.width):
        columns.popitem()
        extra -= 1
    if not columns:
        return
    if widths := _widths(columns, console.width):
        console.print(_grid(widths, rows))
        return
    first, *others = columns
    is_name = first[0] != ">"
    widths = _widths({head: columns[head] for head in others}, console.width) if is_name else {}
    for number, (name, group) in enumerate(groupby(filled, key=lambda row: row[first])):
        if widths:
            console.print(name, highlight=False, soft_wrap=True)
            console.print(_grid(widths, group, has_heads=number == 0))
            continue
        title = name if is_name else f"{_text(first)}: {name}"
        for row in group:
            pairs = [f"{_text(head)}: {row[head]}" for head in others if row[head]]
            text = block(title, pairs, console.width)
            console.print(text, highlight=False, soft_wrap=True)


def block(name: str, pairs: Iterable[str], width: int) -> str:
    """Return one row as lines: its name, then ``key: value`` pairs, as many per line as fit.

    >>> print(block("tile:cpu", ["graphs: 30", "rows: 1,920",
    ...     "why: these are more words than fit"], 30))
    tile:cpu
      graphs: 30  rows: 1,920
      why: these are more words
      than fit
    """
    lines: list[str] = []
    for pair in pairs:
        if lines and cell_len(lines[-1]) + 2 + cell_len(pair) <= width:
            lines[-1] += f"  {pair}"
        else:
            lines += textwrap.wrap(
                pair, width, initial_indent="  ", subsequent_indent="  ", **_WHOLE_WORDS
            )
    return "\n".join([name, *lines])


def _text(head: str) -> str:
    return head.lstrip(">~")


def _grid(widths: Mapping[str, int], rows: Iterable[Row], has_heads: bool = True) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD if has_heads else box.SIMPLE,
        show_header=has_heads,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for head, width in widths.items():
        justify: Any = "right" if head[0] == ">" else "left"
        table.add_column(_text(head), width=width, overflow="fold", justify=justify)
    for row in rows:
        if row:
            table.add_row(*(row[head] for head in widths))
        else:
            table.add_section()
    return table


def _widths(
    columns: Mapping[str, Sequence[str]], width: int, limits: Sequence[Any] = (_WIDE, _NARROW)
) -> dict[str, int]:
    """Return the widths of columns, wrapped as little as needed; empty if they do not fit."""
    for limit in limits:
        widths = {head: _least(head, cells, *limit) for head, cells in columns.items()}
        spare = width - sum(widths.values()) - _GAP * (len(widths) - 1)
        if spare < 0:
            continue
        for head, cells in columns.items():
            unwrapped = max(map(cell_len, [_text(head), *cells]))
            added = min(spare, unwrapped - widths[head])
            widths[head] += added
            spare -= added
        return widths
    return {}


def _least(
    head: str, cells: Sequence[str], head_width: int, prose_width: int, word_width: int
) -> int:
    """Return the minimum width of a column in cells."""
    width = max(map(cell_len, cells))
    if head[0] == "~":
        word = max(map(cell_len, " ".join(cells).split()), default=0)
        width = max(min(width, prose_width), min(word, word_width))
    lines = textwrap.wrap(_text(head), max(width, head_width), **_WHOLE_WORDS)
    return max([width, *map(cell_len, lines)])


def _fits_wide(columns: Mapping[str, Sequence[str]], width: int) -> bool:
    """Return whether the columns fit unwrapped, or those after a first column that names groups."""
    first, *others = columns
    if _widths(columns, width, [_WIDE]):
        return True
    return first[0] not in ">~" and bool(
        _widths({head: columns[head] for head in others}, width, [_WIDE])
    )


def plain(text: str) -> str:
    """Return text with control characters escaped: a file name must not forge output."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
