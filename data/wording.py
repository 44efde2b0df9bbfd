"""Wording that lines and messages share."""

from __future__ import annotations

from collections.abc import Mapping


def counted(count: int, noun: str) -> str:
    """Return a count with its noun in the plural, or in the singular for 1.

    >>> counted(1, "test graph"), counted(0, "row"), counted(1200, "family")
    ('1 test graph', '0 rows', '1,200 families')
    """
    if count != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("ly") else f"{noun}s"
    return f"{count:,} {noun}"


def reasons(why: Mapping[str, str]) -> list[str]:
    """Return lines ``name: reason``; the reason alone where it begins with the name.

    >>> reasons({"tile:cpu": "tile:cpu has no test graphs", "tile:xla": "its labels are withheld"})
    ['tile:cpu has no test graphs', 'tile:xla: its labels are withheld']
    """
    return [text if text.startswith(name) else f"{name}: {text}" for name, text in why.items()]
