"""Which node of a graph an operation of the compiled program stands for: told by marks in names of origin.

XLA carries ``op_name`` through all its passes; a fusion has that of one of the operations in it, mostly the
convolution, dot or root. JAX gives all dots of a function the same name, so a mark is put behind it.
"""

from __future__ import annotations

import re
from typing import Final

from xlarank.data.hlo.compiler.constrain import instructions
from xlarank.data.hlo.messages import HloModuleProto, Message

_MARK: Final = "xlarank.node"
#: Merged operations may have several marks; the first stands for them.
_FOUND: Final = re.compile(rf"/?{re.escape(_MARK)}(\d+)")


def marked(module: Message) -> Message:
    """A copy of the module with the number of each instruction's node in its name of origin.

    Nothing that the compiler looks at changes, so neither do programs nor labels.
    """
    found = HloModuleProto()
    found.CopyFrom(module)
    for node, (_, instruction) in enumerate(instructions(found)):
        name = instruction.metadata.op_name
        instruction.metadata.op_name = f"{name}/{_MARK}{node}" if name else f"{_MARK}{node}"
    return found


def unmarked(name: str) -> tuple[str, int]:
    """A name of origin without its mark, and the node; -1 without a mark.

    >>> unmarked("jit(f)/dot_general/xlarank.node33")
    ('jit(f)/dot_general', 33)
    >>> unmarked("xlarank.node4"), unmarked("jit(f)/add")
    (('', 4), ('jit(f)/add', -1))
    """
    mark = _FOUND.search(name)
    return _FOUND.sub("", name), int(mark[1]) if mark else -1
