"""Tables as JSON, and as Markdown for the site."""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

import xlarank
from xlarank.models.stored import ESTIMATED_TIME

#: Beginning of the name of a simple count among rankers.
_COUNT: Final = "simple count: "
#: Name of the graph network that trees are compared with.
PEER: Final = "GraphSAGE, 4 layers"
FOLDER: Final = Path(__file__).parent
README: Final = FOLDER.parents[1] / "README.md"
#: Pages of the site; some have tables.
PAGES: Final = sorted((README.parent / "docs").rglob("*.md"))
# Devices whose rows the README shows, in words.
_MEASURED_ON: Final = {"cpu": "CPU", "nvidia-h200": "an NVIDIA H200"}
_MARKED: Final = re.compile(
    r"^(<!-- table: ([\w-]+) -->)$.*?^(<!-- end of table -->)$", re.M | re.S
)
#: A value; ``[mean, standard deviation]``; None for an empty cell.
Cell = str | int | float | list[float] | None


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of results and the origin of its figures.

    Attributes:
        title: one sentence.
        labels: origin of the labels: measured or estimated, and on which hardware.
        seeds: number of fits behind each figure; 0 if nothing was fitted.
        rows: one cell per head.
        version, date, machine: of the run.
    """

    title: str
    labels: str
    seeds: int
    heads: list[str]
    rows: list[list[Cell]]
    version: str = xlarank.__version__
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%d", time.gmtime()))
    machine: str = field(
        default_factory=lambda: f"{os.cpu_count()} cores {platform.machine()}, no GPU"
    )


def path_of(version: str = xlarank.__version__) -> Path:
    return FOLDER / f"{version}.json"


def read(path: Path) -> dict[str, Table]:
    """Return the tables of a version by name; an empty dictionary if there is no file."""
    if not path.exists():
        return {}
    return {
        name: Table(**table) for name, table in json.loads(path.read_text(encoding="utf-8")).items()
    }


def write(path: Path, name: str, table: Table) -> None:
    """Add or replace a table in the file, one line per row for readable diffs."""
    tables = dict(sorted({**read(path), name: table}.items()))
    text = ",\n".join(f'"{key}": {_json(value)}' for key, value in tables.items())
    path.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")


def _json(table: Table) -> str:
    about = asdict(replace(table, rows=[[_rounded(cell) for cell in row] for row in table.rows]))
    rows = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in about.pop("rows"))
    fields = [f' "{key}": {json.dumps(value, ensure_ascii=False)}' for key, value in about.items()]
    return "{\n" + ",\n".join([*fields, f' "rows": [\n{rows}\n ]']) + "\n}"


def _rounded(cell: Cell) -> Cell:
    if isinstance(cell, list):
        return [round(value, 5) for value in cell]
    return round(cell, 5) if isinstance(cell, float) else cell


def markdown(table: Table) -> str:
    """Return the table as Markdown, with its origin below it."""
    texts = [
        any(isinstance(row[column], str) for row in table.rows)
        for column in range(len(table.heads))
    ]
    lines = [_line(table.heads), _line(["---" if text else "---:" for text in texts])]
    lines += [_line(list(map(shown, row))) for row in table.rows]
    fits = f"{table.seeds} seed{'' if table.seeds == 1 else 's'}; " if table.seeds else ""
    origin = f"Labels {table.labels}; {fits}{table.machine}; version {table.version}, {table.date}."
    return "\n".join([f"**{table.title}**", "", *lines, "", f"<small>{origin}</small>", ""])


def in_page(text: str, tables: Mapping[str, Table]) -> str:
    """Return a page with the current tables; raises `KeyError` for an unknown one."""
    return _MARKED.sub(
        lambda marked: f"{marked[1]}\n\n{markdown(tables[marked[2]])}\n{marked[3]}", text
    )


def update_documents(tables: Mapping[str, Table]) -> None:
    """Write the current tables into the README and the pages below docs/."""
    for page in [README, *PAGES]:
        text = page.read_text(encoding="utf-8")
        page.write_text(
            in_readme(text, tables) if page == README else in_page(text, tables), encoding="utf-8"
        )


def in_readme(text: str, tables: Mapping[str, Table]) -> str:
    """Return the README with the current table between its two marks."""
    begin = "<!-- results: python -m benchmarks.results writes this table -->\n"
    end = "<!-- end of results -->"
    heads = ["labels", "what is ranked", "score", "ranks by default"]
    heads += ["trees", f"{PEER}, on the same graphs and folds", "estimated time, a formula"]
    heads.append("best simple count")
    by_collection: dict[Cell, dict[str, list[Cell]]] = {}
    for collection, ranker, *cells in tables["rankers"].rows:
        by_collection.setdefault(collection, {})[str(ranker)] = cells
    rows: list[list[Cell]] = []
    for collection, name, _, metric, ranker, score, formula, count, which, *_ in tables[
        "measured"
    ].rows:
        what = f"{name}, {collection}"
        trees = None if ranker == ESTIMATED_TIME else score
        rows.append(
            ["measured on TPU v3", what, metric, ranker, trees, None, formula, _both(count, which)]
        )
    for collection, held_out, graphs, ranker, tau, formula, count, which, *_ in tables[
        "shipped"
    ].rows:
        if held_out != "valid":
            labels = "estimated by the TPU's compiler, out of fold"
            trees = by_collection[collection]["lambdarank"][1] if ranker == ESTIMATED_TIME else tau
            what = f"{graphs} graphs of {collection}"
            rows.append(
                [labels, what, "Kendall's tau", ranker, trees, None, formula, _both(count, which)]
            )
    peers = {(row[0], row[1]): row[2] for row in tables["graph-network"].rows}
    for collection, rankings in by_collection.items():
        device = str(collection).split(":")[1]
        if device not in _MEASURED_ON:
            continue
        graphs, trees, *_ = rankings["lambdarank"]
        formula = rankings[ESTIMATED_TIME][1]
        counts = [name for name in rankings if name.startswith(_COUNT)]
        count = _both(rankings[counts[0]][1], counts[0].removeprefix(_COUNT))
        ranker = "lambdarank" if _mean(trees) > _mean(formula) else ESTIMATED_TIME
        what = f"{graphs} graphs of {collection}"
        metric = "Kendall's tau" if str(collection).startswith("layout") else "1 - slowdown@5"
        labels = f"measured on {_MEASURED_ON[device]}, out of fold"
        peer = peers.get((collection, graphs))
        rows.append([labels, what, metric, ranker, trees, peer, formula, count])
    lines = [
        _line(heads),
        _line(["---"] * len(heads)),
        *(_line(list(map(shown, row))) for row in rows),
    ]
    head, _, rest = text.partition(begin)
    return head + begin + "\n".join(lines) + "\n" + end + rest.partition(end)[2]


def _both(score: Cell, name: Cell) -> str:
    return f"{shown(score)}, {name}"


def _mean(cell: Cell) -> float:
    value = cell[0] if isinstance(cell, list) else cell
    assert isinstance(value, float)
    return value


def shown(cell: Cell) -> str:
    """Return a cell as text.

    >>> [shown(cell) for cell in (0.5, 1200, None, "tau")]
    ['0.500', '1,200', '', 'tau']
    """
    match cell:
        case None:
            return ""
        case [mean, spread]:
            return f"{mean:.3f}\u00a0±\u00a0{spread:.3f}"  # never broken over lines
        case float():
            return f"{cell:.3f}" if abs(cell) < 10 else f"{cell:,.0f}"
        case int():
            return f"{cell:,}"
        case _:
            return str(cell)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
