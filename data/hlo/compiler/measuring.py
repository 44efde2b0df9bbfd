"""Run times on this machine's CPU; only ever run in a child of `xlarank.data.hlo.compiler.service`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import CompilerError
from xlarank.data.hlo.messages import HloModuleProto, Message

if TYPE_CHECKING:
    from xlarank.data.hlo.compiler.xla import Xla

#: Outputs may differ by so much of their largest value: another layout adds up in another order.
_TOLERANCE: Final = 2e-2
#: Element types of XLA that inputs can be made for: numpy's name of each.
_TYPES: Final = dict(
    enumerate("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split(), start=1)
) | {16: "bfloat16"}


def measure(xla: Xla, modules: Sequence[bytes], *, rounds: int, seed: int) -> list[list[float]]:
    """Return the seconds of every module in every round; the modules of a round run in shuffled order.

    A module whose outputs are not those of the first one gets no times. Inputs are drawn from ``seed``.
    """
    import jax

    rng = np.random.default_rng(seed)
    parsed = HloModuleProto.FromString(modules[0])
    inputs = [jax.device_put(value, xla.device) for value in inputs_of(parsed, rng)]
    runs = [xla.compile(module) for module in modules]
    right = _outputs(runs[0], inputs)
    sound = [at for at, run in enumerate(runs) if close(_outputs(run, inputs), right)]
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for at in rng.permutation(sound).tolist():
            begun = time.perf_counter()
            jax.block_until_ready(runs[at].execute(inputs))
            times[at].append(time.perf_counter() - begun)
    return times


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


def _outputs(run: Any, inputs: list[Any]) -> list[NDArray[np.float64]]:
    return [np.asarray(output).astype(np.float64) for output in run.execute(inputs)]


def close(outputs: Sequence[NDArray[np.float64]], right: Sequence[NDArray[np.float64]]) -> bool:
    """Whether outputs agree within a tolerance of their largest value.

    >>> close([np.array([1.0, 2.0])], [np.array([1.0, 2.01])]), close([np.array([1.0])], [np.array([2.0])])
    (True, False)
    """
    return len(outputs) == len(right) and all(
        one.shape == other.shape
        and np.array_equal(np.isfinite(one), np.isfinite(other))
        and bool((np.abs(one - other)[np.isfinite(other)] <= _TOLERANCE * _largest(other)).all())
        for one, other in zip(outputs, right, strict=True)
    )


def _largest(values: NDArray[np.float64]) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max(initial=0.0)) + 1e-12
