"""Run times on this machine's CPU; only ever run in a child of `xlarank.data.hlo.compiler.service`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import CompilerError
from xlarank.data.hlo.compiler.constrain import DEFAULT, entry_modes, order_of
from xlarank.data.hlo.compiler.pasted import Pasted
from xlarank.data.hlo.messages import HloModuleProto, Message

if TYPE_CHECKING:
    from xlarank.data.hlo.compiler.xla import Xla

#: Outputs may differ by so much of their largest value: another layout adds up in another order.
TOLERANCE: Final = 2e-2
#: Element types of XLA that inputs can be made for: numpy's name of each.
_TYPES: Final = dict(
    enumerate("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split(), start=1)
) | {16: "bfloat16"}


def measure(xla: Xla, folder: Path, *, modules: Sequence[bytes], rounds: int, seed: int) -> list[list[float]]:
    """Return the seconds of every module in every round; the modules of a round run in shuffled order.

    A module whose outputs are not those of the first one gets no times. Inputs are drawn from ``seed``.
    """
    import jax

    rng = np.random.default_rng(seed)
    parsed = HloModuleProto.FromString(modules[0])
    inputs = [jax.device_put(value, xla.device) for value in inputs_of(parsed, rng)]
    runs = [xla.compile(module) for module in modules]
    right = _floats(runs[0].execute(inputs))
    sound = [at for at, run in enumerate(runs) if _largest(_floats(run.execute(inputs)), right) <= TOLERANCE]
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for at in rng.permutation(sound).tolist():
            begun = time.perf_counter()
            jax.block_until_ready(runs[at].execute(inputs))
            times[at].append(time.perf_counter() - begun)
    return times


def compare(xla: Xla, folder: Path, *, plain: bytes, edited: bytes | Pasted, ties: Mapping[int, int]) -> float:
    """Return the largest `difference` between outputs of a module and of one with layouts, or of pasted code.

    With ``ties``, positions of inputs and of the outputs that become them, the outputs are those of a second step.
    """
    import jax
    from jax.experimental.layout import Format, Layout
    from jax.sharding import SingleDeviceSharding

    values = inputs_of(HloModuleProto.FromString(plain), np.random.default_rng(0))

    def run(module: bytes | Pasted) -> list[NDArray[np.float64]]:
        if isinstance(module, Pasted):
            step, arguments, formats, _ = module.load(xla.device)
            tree = jax.tree.structure(arguments)
            arrays = jax.tree.leaves(jax.device_put(jax.tree.unflatten(tree, values), formats))

            def execute(arrays: list[Any]) -> list[Any]:
                return list(jax.tree.leaves(step(*jax.tree.unflatten(tree, arrays))))

        else:
            modes = (entry_modes(HloModuleProto.FromString(module)) or [[DEFAULT] * len(values)])[0]
            place = SingleDeviceSharding(xla.device)
            places = [place if one == DEFAULT else Format(Layout(order_of(one)[::-1]), place) for one in modes]
            arrays = list(map(jax.device_put, values, places))
            execute = xla.compile(module).execute
        if ties:
            first = execute(arrays)
            arrays = [first[ties[at]] if at in ties else array for at, array in enumerate(arrays)]
        return _floats(execute(arrays))

    return _largest(run(edited), run(plain))


def inputs_of(module: Message, rng: np.random.Generator) -> list[NDArray[Any]]:
    """Return random values for the parameters of a module. Integers are 0 or 1, so that they may be indices.

    Raises `CompilerError` for element types that are not arrays of numbers.
    """
    import ml_dtypes  # with jax

    shapes = module.host_program_shape.parameters
    inputs = []
    for shape in shapes:
        name = _TYPES.get(shape.element_type)
        if name is None or shape.tuple_shapes:
            raise CompilerError(
                f"a parameter has element type {shape.element_type}",
                expected="arrays of numbers, to run the program",
            )
        dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
        size = tuple(shape.dimensions)
        values = rng.standard_normal(size) if "float" in name else rng.integers(0, 2, size)
        inputs.append(np.asarray(values).astype(dtype))
    return inputs


def _floats(outputs: Sequence[Any]) -> list[NDArray[np.float64]]:
    return [np.asarray(output).astype(np.float64) for output in outputs]


def _largest(outputs: Sequence[NDArray[np.float64]], right: Sequence[NDArray[np.float64]]) -> float:
    return max(map(difference, outputs, right), default=0.0)


def difference(found: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """Return the largest difference of two outputs relative to the second one's largest value, infinite where other
    values are finite.

    >>> round(difference(np.array([1.0, 2.0, np.nan]), np.array([1.0, 4.0, np.nan])), 6)
    0.5
    """
    finite = np.isfinite(right)
    if found.shape != right.shape or not np.array_equal(np.isfinite(found), finite):
        return float("inf")
    largest = np.abs(right[finite]).max(initial=0.0) + 1e-12
    return float((np.abs(found - right)[finite] / largest).max(initial=0.0))
