"""JAX functions of the user's modules: import, lowering, compilation with pasted code.

Runs in child processes of `xlarank.pipelines.programs.compiler.xla`, each of which imports the
modules anew.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from xlarank.data.errors import CompilerError
from xlarank.data.hlo.messages import HloModuleProto
from xlarank.pipelines.programs.compiler.xla import (
    LEAVES_FILE,
    Outcome,
    Program,
    Xla,
    dumped,
    first_line,
    has_convolutions,
    library_convolutions,
)


def compile_pasted(xla: Xla, folder: Path, *, function: str, lines: Sequence[str]) -> str:
    """Return the text of a program compiled with lines after ``step, arguments = function()``."""
    import jax

    step, arguments = import_function(function)
    scope = {"jax": jax, "device": xla.device, "step": step, "arguments": arguments}
    # the last line creates the argument arrays
    code = "\n".join(lines[:-1]).replace("jax.devices()[0]", "device")
    exec(code.replace("jax.jit(step", "jax.jit(step, keep_unused=True"), scope)
    shapes = jax.tree.map(_shape_of, arguments, scope["in_formats"])
    return str(scope["step"].lower(*shapes).compile().as_text())


def _shape_of(leaf: Any, sharding: Any) -> Any:
    import jax

    shape = jax.numpy.shape(leaf)
    return jax.ShapeDtypeStruct(shape, jax.numpy.result_type(leaf), sharding=sharding)


def lower(xla: Xla, folder: Path, *, function: str, module: bytes) -> Program | Outcome:
    """Compile ``module:function`` or a module, and return the dumps around layout assignment.

    XLA:GPU replaces convolutions by library calls before it assigns layouts, which then cannot be
    set. Such a program is taken in the state in which XLA:CPU assigns layouts, if that computes the
    same.
    """
    lowered = _lower_on(xla, folder, xla.device, function, module)
    if lowered is None:
        return Outcome("crashed", message="no layout assignment was dumped")
    calls = library_convolutions(HloModuleProto.FromString(lowered.serialized))
    if calls:
        import jax

        inner = folder / "cpu"
        inner.mkdir()
        with suppress(Exception):  # no CPU among the platforms, or no code for it
            other = _lower_on(xla, inner, jax.devices("cpu")[0], function, module)
            if other and has_convolutions(HloModuleProto.FromString(other.serialized), calls):
                return other
    return lowered


def _lower_on(xla: Xla, folder: Path, device: Any, function: str, module: bytes) -> Program | None:
    """Compile for one device, and return the dumps, if there are any."""
    dumps = {
        "xla_dump_to": str(folder),
        "xla_dump_hlo_pass_re": "layout-assignment",
        "xla_dump_hlo_as_proto": True,
    }
    if function:
        step = _lower_function(device, folder, function)
        step.compile(compiler_options=dumps)
    else:
        xla.compile(module, dumps, None if device is xla.device else device)
    return dumped(folder)


def _lower_function(device: Any, folder: Path, name: str) -> Any:
    """Lower a function with JAX, and write the paths of its inputs and outputs to a file."""
    import jax
    from jax.tree_util import keystr, tree_leaves, tree_leaves_with_path

    function, arguments = import_function(name)
    sharding = jax.sharding.SingleDeviceSharding(device)
    try:
        shapes = jax.tree.map(lambda leaf: _shape_of(leaf, sharding), arguments)
        donated = list[int]()
        if hasattr(function, "lower"):  # already jitted, perhaps with donated arguments
            for at, info in enumerate(function.lower(*shapes).args_info[0]):
                if any(leaf.donated for leaf in tree_leaves(info)):
                    donated.append(at)
        options = {"keep_unused": True, "in_shardings": sharding, "out_shardings": sharding}
        lowered = jax.jit(function, donate_argnums=donated, **options).lower(*shapes)
    except Exception as error:  # any error of the program
        got = f"{name} cannot be traced ({type(error).__name__}: {first_line(error)})"
        expected = "arguments that fit the function: arrays or jax.ShapeDtypeStruct(shape, dtype)"
        do = "try jax.jit(function).lower(*arguments); bind what is no array with functools.partial"
        if "incompatible devices" in str(error):
            expected = "a function without shardings, which name devices of this machine"
            do = "advise the function without pasted code, or the edited module (NAME.advised.pb)"
        raise CompilerError(got, expected=expected, do=do) from error
    leaves = []
    for tree in (shapes, lowered.out_info):
        leaves.append([keystr(path) for path, _ in tree_leaves_with_path(tree)])
    (folder / LEAVES_FILE).write_text(json.dumps(leaves), encoding="utf-8")
    return lowered


def import_function(name: str) -> tuple[Any, Any]:
    """Return the callable and the arguments that ``module:function`` returns."""
    module, _, function = name.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        make = getattr(importlib.import_module(module), function)
        step, arguments = make()
        if not callable(step) or not isinstance(arguments, tuple | list):
            raise TypeError(f"it returned {type(step).__name__}, {type(arguments).__name__}")
    except Exception as error:  # a module may raise anything
        got = f"{name} is no program ({type(error).__name__}: {first_line(error)})"
        expected = "a function, importable from here, that returns a callable and its arguments"
        do = "check the name, or wrap it: def program(): return step, (weights, batch)"
        raise CompilerError(got, expected=expected, do=do) from error
    return step, tuple(arguments)
