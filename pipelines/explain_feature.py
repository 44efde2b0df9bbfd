"""What a column means, from the block that computes it."""

from __future__ import annotations

import difflib
import inspect
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, get_args

from xlarank.data.errors import XlarankError
from xlarank.data.graph import Kind
from xlarank.features.catalogue import every_block

_SUGGESTED: Final = 5


@dataclass(frozen=True)
class Explanation:
    """One column.

    Attributes:
        name: of the column.
        meaning: what it holds, with its unit.
        kinds: the kinds of graphs it is for.
        block: name of the block that computes it.
        about: the block's description: formula and source.
        scope: ``graph``, ``configuration`` or ``instance``.
        tier: ``fast`` or ``full``.
        transductive: whether it looks at the other candidates of the graph.
    """

    name: str
    meaning: str
    kinds: tuple[str, ...]
    block: str
    about: str
    scope: str
    tier: str
    transductive: bool


def explain_feature(pattern: str) -> list[Explanation]:
    """The columns called ``pattern``, which may hold ``*`` and ``?``, in column order.

    Raises `XlarankError` with the nearest names when there is none.
    """
    found: dict[str, Explanation] = {}
    kinds: tuple[Kind, ...] = get_args(Kind)
    for kind in kinds:
        for block in every_block(kind):
            for name, meaning in block.columns.items():
                found[name] = Explanation(
                    name,
                    meaning,
                    block.kinds,
                    type(block).__name__,
                    inspect.cleandoc(block.__doc__ or ""),
                    block.scope.value,
                    block.tier.value,
                    block.transductive,
                )
    matching = [found[name] for name in found if fnmatchcase(name, pattern)]
    if not matching:
        near = difflib.get_close_matches(pattern, list(found), _SUGGESTED, cutoff=0.5)
        raise XlarankError(
            f"{pattern!r} is not a column",
            expected=f"one of {len(found)} columns" + (f", such as {', '.join(near)}" if near else ""),
            do="see FEATURES.md, or ask for several with a pattern such as 'padding__*'",
        )
    return matching
