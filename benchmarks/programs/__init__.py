"""Programs to collect configurations of: small ones in many families, several batch sizes of each.

Each is a function without arguments that returns ``(function, shapes)`` and is named
``family__variant`` (``family_train__variant`` for a step of training), so that
``benchmarks.programs.attention:llama__a`` names one. Variants a and b differ in the batch size alone:
siblings, of one structure. ``c`` is another size, mostly in bfloat16; a later one a training step.
``PROGRAMS`` holds all of them, families taken in turn, so that an early stop still covers every family.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from benchmarks.programs import (
    attention,
    convolutional,
    dense_prediction,
    numerical,
    recommenders,
    sequences,
    volumes,
)
from benchmarks.programs.parts import Program

_MODULES = (attention, numerical, recommenders, sequences, convolutional, volumes, dense_prediction)


def _in_turn() -> dict[str, Callable[[], Program]]:
    families: dict[str, list[tuple[str, Callable[[], Program]]]] = {}
    for one in itertools.zip_longest(*(module.PROGRAMS.items() for module in _MODULES)):
        for item in filter(None, one):
            families.setdefault(item[0].split("__")[0].removesuffix("_train"), []).append(item)
    order = itertools.zip_longest(*families.values())
    return dict(item for turn in order for item in turn if item)


PROGRAMS = _in_turn()
