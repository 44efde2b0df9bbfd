"""A page in one file: no network, light and dark, readable on a phone, tables that sort."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_CSS: Final = """
:root{color-scheme:light dark;
--page:#fbfbfc;--card:#fff;--ink:#1c2733;--soft:#5c6a79;--line:#dfe4ea;--accent:#1f66b0}
@media (prefers-color-scheme:dark){:root{--page:#12161b;--card:#1a2027;--ink:#e4e9ee;--soft:#97a4b1;--line:#303a45;
--accent:#7db4ee}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main,header,nav{max-width:1080px;margin:0 auto;padding:0 18px}
header{padding-top:28px}h1{font-size:26px;margin:0 0 4px}
h2{font-size:20px;margin:36px 0 10px;border-bottom:1px solid var(--line);padding-bottom:4px}
h3{font-size:16px;margin:22px 0 8px}p{margin:8px 0;max-width:75ch}
a{color:var(--accent)}nav{padding-top:8px;font-size:14px}nav a{margin-right:14px;white-space:nowrap}
.soft{color:var(--soft);font-size:14px}.good{color:#2f9e77}.bad{color:#d9822b}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px;
margin:12px 0;overflow-x:auto}
.wide{overflow-x:auto}svg{height:auto;display:block;--page:var(--card)}
table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:4px 10px;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
th{cursor:pointer;user-select:none;vertical-align:bottom;color:var(--soft);font-weight:600}
th[aria-sort=ascending]::after{content:" \\2191"}th[aria-sort=descending]::after{content:" \\2193"}
td.n,th.n{text-align:right}td.n{white-space:nowrap}
tbody tr:hover{background:color-mix(in srgb,var(--accent) 8%,transparent)}
tr.sum td,tr.sum td.n{font-weight:600;white-space:normal}code{font-size:12.5px;overflow-wrap:anywhere}
td code{display:inline-block;min-width:230px}
details>summary{cursor:pointer;color:var(--accent)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:12px;margin:14px 0}
.fact{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 14px}
.fact b{display:block;font-size:22px}.fact span{color:var(--soft);font-size:13px}
@media (max-width:600px){body{font-size:14px}th,td{padding:4px 6px}td:not(.n){min-width:105px}
.card{padding:8px}h1{font-size:21px}}
@media print{nav{display:none}.card{break-inside:avoid}}
"""
#: Rows of a sum stay at the end; numbers sort as numbers, whatever is written beside them.
_SCRIPT: Final = """
for(const th of document.querySelectorAll("th"))th.addEventListener("click",()=>{
const body=th.closest("table").tBodies[0],at=th.cellIndex,up=th.getAttribute("aria-sort")!=="ascending";
const of=r=>{const c=r.cells[at],v=c.dataset.v??c.textContent.trim(),n=parseFloat(v);return isNaN(n)?v:n};
const rows=[...body.rows].filter(r=>!r.classList.contains("sum"));
rows.sort((a,b)=>{const x=of(a),y=of(b);
const s=typeof x==="number"&&typeof y==="number"?x-y:String(x).localeCompare(String(y));return up?s:-s});
const last=[...body.rows].filter(r=>r.classList.contains("sum"));body.append(...rows,...last);
for(const o of th.parentElement.cells)o.removeAttribute("aria-sort");
th.setAttribute("aria-sort",up?"ascending":"descending")});
"""


@dataclass(frozen=True)
class Raw:
    """Text that is HTML already."""

    html: str


Cell = str | int | float | Raw | None


def text(value: Cell) -> str:
    """A value as HTML."""
    if isinstance(value, Raw):
        return value.html
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value + 0.0:.3f}".replace("-0.000", "0.000")
    return escape(f"{value:,}" if isinstance(value, int) else value)


def table(heads: Sequence[str], rows: Iterable[Sequence[Cell]], sums: Iterable[Sequence[Cell]] = ()) -> str:
    """A table that sorts by a click on a head; numbers stand right, ``sums`` stay at its end."""
    rows, sums = list(rows), list(sums)
    if not rows:
        return ""
    right = [
        all(isinstance(row[i], int | float) or row[i] is None for row in rows)
        and any(row[i] is not None for row in rows)
        for i in range(len(heads))
    ]
    head = "".join(f'<th scope="col"{_n(right[i])}>{escape(name)}</th>' for i, name in enumerate(heads))
    body = "".join(f"<tr>{_cells(row, right)}</tr>" for row in rows)
    body += "".join(f'<tr class="sum">{_cells(row, right)}</tr>' for row in sums)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _n(right: bool) -> str:
    return ' class="n"' if right else ""


def _cells(row: Sequence[Cell], right: Sequence[bool]) -> str:
    cells = []
    for i, value in enumerate(row):
        exact = f' data-v="{value}"' if isinstance(value, int | float) else ""
        cells.append(f"<td{_n(right[i])}{exact}>{text(value)}</td>")
    return "".join(cells)


def paragraph(words: str, *, soft: bool = False) -> str:
    return f"<p{' class=soft' if soft else ''}>{escape(words)}</p>"


def card(*parts: str) -> str:
    return f'<div class="card">{"".join(parts)}</div>'


def facts(values: Sequence[tuple[str, str]]) -> str:
    """The numbers to see first."""
    boxes = (f'<div class="fact"><b>{escape(value)}</b><span>{escape(what)}</span></div>' for value, what in values)
    return f'<div class="facts">{"".join(boxes)}</div>'


def folded(title: str, inner: str) -> str:
    """Something that opens on a click."""
    return f"<details><summary>{escape(title)}</summary>{inner}</details>" if inner else ""


@dataclass(frozen=True)
class Section:
    """A part of the page with a place in its contents."""

    name: str
    title: str
    inner: str


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The whole document."""
    shown = [section for section in sections if section.inner]
    links = " ".join(f'<a href="#{section.name}">{escape(section.title)}</a>' for section in shown)
    body = "".join(
        f'<section id="{section.name}"><h2>{escape(section.title)}</h2>{section.inner}</section>'
        for section in shown
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{_CSS}</style></head>'
        f"<body><header><h1>{escape(title)}</h1>{lead}</header><nav>{links}</nav><main>{body}</main>"
        f"<script>{_SCRIPT}</script></body></html>\n"
    )
