"""From a graph to numbers: one file per physical idea, put together by `assemble`.

A *block* (see `xlarank.features.block`) declares its columns once, with their meaning and cost. Blocks read
shared intermediate results from a *context* (`program`, `layout`, `tile`), where everything physical
is computed once per distinct row of the configuration table and gathered through its codes.

The room can be called: ``xlarank.features(graph)`` computes all columns of a graph (`xlarank.features.columns`).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """A package named as what it does: importing any of its modules puts it in place of a function of that name."""

    def __call__(self, *graph: Any, **settings: Any) -> Any:
        from xlarank.features.columns import features

        return features(*graph, **settings)


sys.modules[__name__].__class__ = _Room
