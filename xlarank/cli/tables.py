"""Tables that fit the window: a grid where it is wide enough, else groups, else ``key: value`` lines."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # heavy; imported where a table is shown, so that --help stays quick
    from rich.console import Console
    from rich.table import Table

#: Narrower than this a column of prose is no longer worth reading.
_PROSE: Final = 20
#: Cells between columns.
_GAP: Final = 2


@dataclass
class Column:
    """``wraps`` marks prose, which may take several lines; everything else is shown whole."""

    name: str
    right: bool = False
    wraps: bool = False


@dataclass
class Sheet:
    """Rows under heads, shown by `print_sheet`. The first column names the row and is never cut."""

    columns: list[Column]
    title: str = ""
    rows: list[tuple[list[str], str]] = field(default_factory=list)
    sections: set[int] = field(default_factory=set)

    def add_row(self, *cells: str, style: str = "") -> None:
        self.rows.append((list(cells), style))

    def add_section(self) -> None:
        """A line below the rows so far."""
        self.sections.add(len(self.rows))

    def widths(self) -> list[tuple[int, int]]:
        """Of each column the cells that it takes at the least, where prose wraps between words, and at most."""
        from rich.cells import cell_len

        found = []
        for at, column in enumerate(self.columns):
            texts = [column.name, *(cells[at] for cells, _ in self.rows)]
            most = max(map(cell_len, texts))
            word = max(cell_len(word) for text in texts for word in text.split() or [""])
            found.append((max(word, min(most, _PROSE)) if column.wraps else most, most))
        return found

    def fits(self, width: int) -> bool:
        """Whether the grid can be shown in so many cells: nothing is cut, and no word is broken."""
        return sum(least + _GAP for least, _ in self.widths()) - _GAP <= width

    def without_first(self) -> Sheet:
        """The other columns."""
        return Sheet(self.columns[1:], rows=[(cells[1:], style) for cells, style in self.rows])


def new_table(*columns: str, title: str = "") -> Sheet:
    """A table; a column that starts with > is aligned right, one that starts with ~ is prose."""
    made = [Column(name.lstrip(">~"), right=name.startswith(">"), wraps=name.startswith("~")) for name in columns]
    return Sheet(made, title)


def with_interval(summary: Mapping[str, Any]) -> str:
    """Return a mean with its 95 % interval over graphs; one graph has none.

    >>> with_interval({"mean": 0.25, "low": 0.2, "high": 0.3, "graphs": {"a": 0.2, "b": 0.3}})
    '0.250 (0.200 to 0.300)'
    >>> with_interval({"mean": 0.25, "low": 0.25, "high": 0.25, "graphs": {"a": 0.25}})
    '0.250'
    """
    interval = f" ({summary['low']:.3f} to {summary['high']:.3f})" if len(summary["graphs"]) > 1 else ""
    return f"{summary['mean']:.3f}{interval}"


def with_spread(summary: Mapping[str, Any]) -> str:
    """Return a mean with its standard deviation over graphs; one graph has none.

    >>> with_spread({"mean": 0.25, "std": 0.05, "graphs": {"a": 0.2, "b": 0.3}})
    '0.250 ± 0.050'
    >>> with_spread({"mean": 0.25, "std": 0.0, "graphs": {"a": 0.25}})
    '0.250'
    """
    spread = f" ± {summary['std']:.3f}" if len(summary["graphs"]) > 1 else ""
    return f"{summary['mean']:.3f}{spread}"


def print_sheet(sheet: Sheet, console: Console) -> None:
    """Show a table as a grid; in a window too narrow for it by groups of equal first cells, or as blocks."""
    if sheet.title:
        console.print(sheet.title, style="bold", highlight=False, soft_wrap=True)
    if sheet.fits(console.width):
        console.print(_grid(sheet))
        return
    rest, names = sheet.without_first(), [cells[0] for cells, _ in sheet.rows]
    grouped = not sheet.columns[0].right and rest.fits(console.width)
    begins = [at for at, name in enumerate(names) if not at or name != names[at - 1]]
    for begin, end in zip(begins, [*begins[1:], len(names)], strict=True):
        if grouped:
            console.print(names[begin], highlight=False, soft_wrap=True)
            console.print(_grid(rest, range(begin, end), head=begin == 0))
            continue
        for cells, style in sheet.rows[begin:end]:
            for line in block(sheet, cells, console.width):
                console.print(line, style=style, highlight=False, soft_wrap=True)


def block(sheet: Sheet, cells: list[str], width: int) -> list[str]:
    """One row as lines: its name, or first number, then ``key: value`` pairs, as many a line as fit.

    >>> block(new_table("collection", ">graphs", ">rows"), ["tile:cpu", "30", "1,920"], 24)
    ['tile:cpu', '  graphs: 30', '  rows: 1,920']
    >>> block(new_table(">contribution", "node", "operation"), ["-0.2", "", "two other nodes"], 30)
    ['contribution: -0.2', '  operation: two other nodes']
    """
    first = sheet.columns[0]
    lines = [f"{first.name}: {cells[0]}" if first.right else cells[0]]
    for column, cell in zip(sheet.columns[1:], cells[1:], strict=True):
        if not cell.strip():
            continue
        pair = f"{column.name}: {cell}"
        joined = f"{lines[-1]}, {pair}"
        if len(lines) > 1 and len(joined) <= width:
            lines[-1] = joined
        else:
            lines += textwrap.wrap(
                pair, max(width, 20), initial_indent="  ", subsequent_indent="    ",
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip
    return lines


def _grid(sheet: Sheet, rows: range | None = None, head: bool = True) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD if head else box.SIMPLE, show_header=head, show_edge=False, pad_edge=False,
                  padding=(0, 1, 0, 0))  # fmt: skip
    for column, (least, most) in zip(sheet.columns, sheet.widths(), strict=True):
        table.add_column(
            column.name, justify="right" if column.right else "left", no_wrap=not column.wraps, overflow="fold",
            min_width=least if column.wraps else most,
        )  # fmt: skip
    for number in rows if rows is not None else range(len(sheet.rows)):
        if number in sheet.sections:
            table.add_section()
        cells, style = sheet.rows[number]
        table.add_row(*cells, style=style or None)
    return table
