"""Pages of the site that describe the columns."""

from __future__ import annotations

from typing import Final

from xlarank.data.graph import Kind
from xlarank.features.block import Block
from xlarank.features.catalogue import BLOCKS, blocks_of, columns_in

_INTRODUCTION: Final = """
Columns (features) are called `block__what__how`. *Graph* columns are constant within a graph,
*configuration* columns differ between its configurations. *Listwise* columns are
computed from all candidates of the graph, without labels.
"""


def pages() -> dict[str, str]:
    """Return the pages of columns as Markdown: the overview, layouts and tiles."""
    return {
        "columns": _overview(),
        "columns-layout": _columns("layout"),
        "columns-tile": _columns("tile"),
    }


def _overview() -> str:
    lines = ["# Columns", _INTRODUCTION, "| block | columns | graphs | meaning | example |"]
    lines.append("|---|---:|---|---|---|")
    for block in BLOCKS:
        example = [*block.columns][-1]
        kinds = ", ".join(f"[{kind}](columns-{kind}.md)" for kind in block.kinds)
        about = block.about.splitlines()[0]
        cells = (block.name, len(block.columns), kinds, about, f"`{example}`")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _columns(kind: Kind) -> str:
    blocks = blocks_of(kind)
    graph = len(columns_in(blocks, "graph"))
    config = len(columns_in(blocks, "configuration"))
    counts = f"{graph} graph columns + {config} configuration columns = {graph + config}.\n"
    return f"# Columns of {kind} graphs\n{_INTRODUCTION}\n{counts}" + "".join(map(_section, blocks))


def _section(block: Block) -> str:
    traits = [block.scope, *["listwise"] * block.listwise]
    rows = "".join(f"| `{name}` | {column.meaning} |\n" for name, column in block.columns.items())
    title = f"{block.name} ({', '.join(traits)})"
    return f"\n## {title}\n\n{block.about}\n\n| column | meaning |\n|---|---|\n{rows}"
