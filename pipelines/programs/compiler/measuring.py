"""Times and outputs of programs on the device, in child processes of the compiler's process."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import CompilerError
from xlarank.pipelines.programs.compiler.constrain import Order, compiled_entry_layouts
from xlarank.pipelines.programs.compiler.xla import Xla, first_line

#: Maximum relative difference of outputs: another layout sums in another order.
TOLERANCE: Final = 2e-2
#: File with an event in each line of JSON: ``["attempt", program]`` before a program is loaded and
#: first run, which may end the process, and ``["round", seconds]``.
EVENTS_FILE: Final = "events"
_MAX_ROUNDS: Final = 1000
#: A compiled program as a function of a list of arrays, and arrays laid out for it.
_Loaded = tuple[Callable[[list[Any]], list[Any]], list[Any]]


def _random_inputs(module: bytes, seed: int) -> list[NDArray[Any]]:
    """Return random inputs of a module; integers are 0 or 1: valid indices."""
    import jax
    from jax._src.lib import xla_client

    rng = np.random.default_rng(seed)
    inputs = []
    for shape in xla_client.XlaComputation(module).program_shape().parameter_shapes():
        sizes = shape.dimensions()
        is_inexact = jax.numpy.issubdtype(shape.numpy_dtype(), jax.numpy.inexact)
        values = rng.standard_normal(sizes) if is_inexact else rng.integers(0, 2, sizes)
        inputs.append(np.asarray(values).astype(shape.numpy_dtype()))
    return inputs


def _load(
    xla: Xla,
    program: bytes,
    inputs: Sequence[NDArray[Any]],
    laid_out: dict[tuple[Order, ...], list[Any]],
) -> _Loaded:
    """Compile a program; return a function of arrays, and the inputs laid out for it.

    Programs with equal entry layouts share the arrays on the device, ``laid_out``.
    """
    import jax
    from jax.experimental.layout import Format, Layout

    executable = xla.compile(program)
    orders = tuple(compiled_entry_layouts(executable.hlo_modules()[0].to_string())[0])
    if orders not in laid_out:
        device = jax.sharding.SingleDeviceSharding(xla.device)
        formats = [Format(Layout(order[::-1]), device) if order else device for order in orders]
        laid_out[orders] = jax.device_put(inputs, formats)
    return executable.execute, laid_out[orders]


def measure(
    xla: Xla,
    folder: Path,
    *,
    plain: bytes,
    programs: Mapping[str, bytes],
    seed: int,
    done: int,
    limit: float,
) -> str:
    """Write `_MAX_ROUNDS` rounds to `EVENTS_FILE`: the seconds of every program.

    The programs of a round run in shuffled order. If a program fails before the rounds, or its
    outputs differ from the first one's by more than `TOLERANCE`, the reason replaces its seconds.
    One that takes ``limit`` seconds to load or run ends the process. Inputs are drawn for the
    module ``plain``; ``done`` rounds were measured before.
    """
    import jax

    inputs = _random_inputs(plain, seed)
    laid_out: dict[tuple[Order, ...], list[Any]] = {}
    rng = np.random.default_rng([seed, done])
    loaded: dict[str, _Loaded] = {}
    problems: dict[str, str] = {}
    first = next(iter(programs))
    reference = None
    for name in (first, *programs):
        with _attempt(folder, name, problems, limit):
            if name not in loaded:
                loaded[name] = _load(xla, programs[name], inputs, laid_out)
            execute, arrays = loaded[name]
            outputs = [np.asarray(output).astype(np.float64) for output in execute(arrays)]
            reference = reference or outputs
            if (largest := difference(outputs, reference)) > TOLERANCE:
                problems[name] = f"outputs differ by {largest:.2g} of their largest value"
    _write_event(folder, "attempt", "")
    if first in problems:
        got = f"the program cannot be measured ({problems[first]})"
        expected = "a program that fits the device and has the same outputs in every run"
        do = "measure a smaller program, or one without randomness"
        raise CompilerError(got, expected=expected, do=do)
    running = [name for name in programs if name not in problems]
    for _ in range(_MAX_ROUNDS):
        seconds: dict[str, float | str] = dict(problems)
        for name in rng.permutation(running).tolist():
            execute, arrays = loaded[name]
            signal.setitimer(signal.ITIMER_REAL, limit)
            start = time.perf_counter()
            jax.block_until_ready(execute(arrays))
            seconds[name] = time.perf_counter() - start
        _write_event(folder, "round", seconds)
    return f"{_MAX_ROUNDS} rounds"


def _write_event(folder: Path, event: str, value: object) -> None:
    with open(folder / EVENTS_FILE, "a", encoding="utf-8") as stream:
        stream.write(json.dumps([event, value]) + "\n")


@contextmanager
def _attempt(folder: Path, name: str, problems: dict[str, str], limit: float) -> Iterator[None]:
    """Record an error in ``problems``, and end the process after ``limit`` seconds."""
    _write_event(folder, "attempt", name)
    # without a handler: nothing else ends a loop on the device
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    except Exception as error:  # any error of the compiler or the device
        problems[name] = first_line(error)


def difference(
    outputs: Sequence[NDArray[np.float64]], expected: Sequence[NDArray[np.float64]]
) -> float:
    """Return the largest error over its output's largest value; inf for other shapes or NaNs.

    >>> round(difference([np.array([1.0, 2.0, np.nan])], [np.array([1.0, 4.0, np.nan])]), 6)
    0.5
    """
    largest = 0.0
    for output, reference in zip(outputs, expected, strict=False):
        finite = np.isfinite(reference)
        if output.shape != reference.shape or not np.array_equal(np.isfinite(output), finite):
            return float("inf")
        scale = np.abs(reference[finite]).max(initial=0.0) + 1e-12
        largest = max(largest, float((np.abs(output - reference)[finite] / scale).max(initial=0.0)))
    return largest
