"""Programs of the embedded sample's estimates and of the gains of `advise`, in many families.

Each is a function without arguments that returns ``(function, shapes)`` and is named
``family__variant`` (``family_train__variant`` for a step of training), so that
``benchmarks.programs.attention:llama__a`` names one. Variants a and b differ in the batch size
alone: siblings, of one structure. ``c`` is another size, mostly in bfloat16; a later one a training
step. ``PROGRAMS`` holds them, families taken in turn, so that an early stop still covers every
family.
"""

from __future__ import annotations

import itertools

from benchmarks.programs import attention, numerical, recommenders, sequences, vision
from benchmarks.programs.parts import Programs
from xlarank.data.families import program_family

MODULES = (attention, numerical, recommenders, sequences, vision)


def _in_turn() -> Programs:
    families: dict[str, Programs] = {}
    for module in MODULES:
        for name, make in module.PROGRAMS.items():
            families.setdefault(program_family(name), {})[name] = make
    turns = itertools.zip_longest(*(programs.items() for programs in families.values()))
    return dict(item for turn in turns for item in turn if item)


PROGRAMS = _in_turn()
