"""Programs of a few operations each, to collect tiles of, over sizes and element types.

Sizes are drawn by the number of a program, half of them multiples of the hardware's tile. No shape
is taken from a program of a reserved family.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.programs.parts import Program, Shape, conv, heads, layer_norm

_VARIANTS = 12


def _size(rng: np.random.Generator, low: int, high: int) -> int:
    """Log-uniform; every other one a multiple of 128, or of 8 below that."""
    size = round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))
    if rng.random() < 0.5:
        step = 128 if size >= 128 else 8
        return max(step, round(size / step) * step)
    return size


def _spread(rng: np.random.Generator, elements: float, count: int, low: int) -> list[int]:
    """So many sizes with about the given product."""
    sizes = []
    for left in range(count, 1, -1):
        even = elements ** (1 / left)
        sizes.append(max(low, _size(rng, max(low, even / 3), max(low + 1.0, even * 3))))  # type: ignore[arg-type]
        elements /= sizes[-1]
    return [*sizes, max(low, round(elements))]


def _products(rng: np.random.Generator) -> tuple[Callable[..., Any], list[tuple[int, ...]]]:
    m, k, n = (_size(rng, 48, 3000) for _ in range(3))

    def run(a: Any, b: Any, at: Any, bt: Any) -> Any:
        return a @ b, jnp.tanh(a @ bt.T), at.T @ b, at.T @ bt.T + 1

    return run, [(m, k), (k, n), (k, m), (n, k)]


def _batched(rng: np.random.Generator) -> tuple[Callable[..., Any], list[tuple[int, ...]]]:
    b = _size(rng, 4, 64)
    m = _size(rng, 24, 600)
    k = _size(rng, 24, 600)
    n = _size(rng, 24, 600)

    def run(x: Any, y: Any, z: Any) -> Any:
        return (
            jnp.einsum("bmk,bkn->bmn", x, y),
            jnp.einsum("bmk,bnk->bmn", x, z),
            jnp.einsum("bmk,bmn->bkn", x, x),
        )

    return run, [(b, m, k), (b, k, n), (b, n, k)]


def _dense(rng: np.random.Generator) -> tuple[Callable[..., Any], list[tuple[int, ...]]]:
    """A layer, its gradients and the step, as in training."""
    m = _size(rng, 16, 256)
    k = _size(rng, 500, 6000)
    n = _size(rng, 200, 3000)

    def run(x: Any, w: Any, b: Any, g: Any, v: Any) -> Any:
        y = jax.nn.relu(x @ w + b)
        g = jnp.where(y > 0, g, 0)
        v = 0.9 * v + x.T @ g
        return y, g @ w.T, w - 0.01 * v, v, b - 0.01 * g.sum(0)

    return run, [(m, k), (k, n), (n,), (m, n), (k, n)]


def _convolutions(
    rng: np.random.Generator, *, gradient: bool
) -> tuple[Callable[..., Any], list[tuple[int, ...]]]:
    batch = _size(rng, 4, 40)
    side = _size(rng, 7, 56)
    ci, co = (int(rng.choice([16, 32, 48, 64, 80, 112, 128, 160, 192, 256, 320])) for _ in range(2))
    window = int(rng.choice([1, 3, 3, 5, 7]))
    stride = int(rng.choice([1, 1, 1, 2]))
    dilation = int(rng.choice([1, 1, 1, 2])) if stride == 1 and window > 1 else 1
    shape = jax.eval_shape(
        partial(conv, stride=stride, dilation=dilation),
        Shape((batch, side, side, ci), jnp.float32),
        Shape((window, window, ci, co), jnp.float32),
    ).shape

    def forward(x: Any, w: Any) -> Any:
        return conv(x, w, stride, dilation=dilation)

    def run(x: Any, w: Any, b: Any) -> Any:
        return jax.nn.relu(forward(x, w) + b)

    def back(x: Any, w: Any, g: Any) -> Any:
        _, pull = jax.vjp(forward, x, w)
        dx, dw = pull(g)
        return jnp.where(x > 0, dx, 0), w - jnp.asarray(0.01, w.dtype) * dw

    shapes: list[tuple[int, ...]] = [(batch, side, side, ci), (window, window, ci, co)]
    return (back, [*shapes, shape]) if gradient else (run, [*shapes, (co,)])


def _others(rng: np.random.Generator) -> tuple[Callable[..., Any], list[tuple[int, ...]]]:
    """Depthwise, grouped and volumetric convolutions, and those along a line."""
    kind = int(rng.integers(4))
    c = 32 * int(rng.integers(1, 7))
    b = _size(rng, 4, 24)
    side = _size(rng, 8, 48)
    if kind == 0:
        return partial(conv, groups=c), [(b, side, side, c), (3, 3, 1, c)]
    if kind == 1:
        return partial(conv, groups=4), [(b, side, side, c), (3, 3, c // 4, 2 * c)]
    if kind == 2:
        return conv, [(b // 2 + 1, 8, side // 2, side // 2, c), (3, 3, 3, c, 64)]
    return conv, [(b, 24 * side, c), (5, c, 2 * c)]


def _reductions(rng: np.random.Generator) -> tuple[Callable[..., Any], list[tuple[int, ...]]]:
    a, b, c = _spread(rng, float(np.exp(rng.uniform(np.log(4e5), np.log(8e6)))), 3, 8)

    def run(x: Any, y: Any) -> Any:
        return (
            x.sum(2),
            jnp.abs(y).max(0),
            (x * y).sum((0, 1)),
            jnp.square(y).mean((0, 2)),
            jnp.exp(x).sum(1),
        )

    return run, [(a, b, c)] * 2


def _normalisations(rng: np.random.Generator) -> tuple[Callable[..., Any], list[tuple[int, ...]]]:
    rows, columns = _spread(rng, float(np.exp(rng.uniform(np.log(2e5), np.log(6e6)))), 2, 64)

    def run(x: Any, y: Any, gain: Any, bias: Any) -> Any:
        mean = y.mean(0)
        spread = y.var(0)
        return (
            jax.nn.softmax(x, -1),
            layer_norm(x, gain, bias),
            (y - mean) * lax.rsqrt(spread + 1e-5) * gain,
        )

    return run, [(rows, columns), (rows, columns), (columns,), (columns,)]


def _transposes(rng: np.random.Generator) -> tuple[Callable[..., Any], list[tuple[int, ...]]]:
    a, b, c = _spread(rng, float(np.exp(rng.uniform(np.log(4e5), np.log(8e6)))), 3, 8)

    def run(x: Any, y: Any) -> Any:
        return (
            x.transpose(0, 2, 1) + 0,
            jnp.tanh(x).transpose(2, 0, 1),
            heads(y, 4) * 2,
            x.transpose(1, 0, 2),
        )

    return run, [(a, b, c), (8, max(8, b), 256)]


def _pointwise(rng: np.random.Generator) -> tuple[Callable[..., Any], list[tuple[int, ...]]]:
    shape = tuple(
        _spread(
            rng, float(np.exp(rng.uniform(np.log(2e5), np.log(1.2e7)))), int(rng.integers(2, 5)), 4
        )
    )

    def run(x: Any, y: Any, z: Any, bias: Any) -> Any:
        return (
            jax.nn.relu(x + bias),
            jax.nn.gelu(x) * y,
            jnp.where(y > 0, z, 0),
            x + y + z,
            (x - y) * lax.rsqrt(jnp.abs(z) + 1),
            jnp.exp(z),
        )

    return run, [shape] * 3 + [shape[-1:]]


def _steps(rng: np.random.Generator) -> tuple[Callable[..., Any], list[tuple[int, ...]]]:
    """Optimisers' steps on one array of weights."""
    shape = tuple(_spread(rng, float(np.exp(rng.uniform(np.log(3e5), np.log(1.5e7)))), 2, 16))

    def run(w: Any, g: Any, m: Any, v: Any) -> Any:
        new_m = 0.9 * m + 0.1 * g
        new_v = 0.99 * v + 0.01 * g * g
        return w - 0.001 * new_m * lax.rsqrt(new_v + 1e-8), new_m, new_v, w * 0.999 - 0.1 * g

    return run, [shape] * 4


def _concatenations(rng: np.random.Generator) -> tuple[Callable[..., Any], list[tuple[int, ...]]]:
    a, b, c = _spread(rng, float(np.exp(rng.uniform(np.log(3e5), np.log(5e6)))), 3, 16)

    def run(x: Any, y: Any) -> Any:
        return (
            jnp.concatenate([x, y], 1),
            jnp.pad(x, ((0, 0), (1, 2), (0, 0))) * 2,
            x[:, b // 4 : b // 2] + 1,
            jnp.broadcast_to(y[:, :1], y.shape) * x,
            jnp.flip(y, 1) + x,
        )

    return run, [(a, b, c)] * 2


_FAMILIES: dict[
    str, Callable[[np.random.Generator], tuple[Callable[..., Any], list[tuple[int, ...]]]]
] = {
    "products": _products,
    "convolutions": partial(_convolutions, gradient=False),
    "pointwise": _pointwise,
    "convgradients": partial(_convolutions, gradient=True),
    "reductions": _reductions,
    "dense": _dense,
    "normalisations": _normalisations,
    "transposes": _transposes,
    "batched": _batched,
    "steps": _steps,
    "otherconvolutions": _others,
    "concatenations": _concatenations,
}


def _make(family: str, number: int) -> Program:
    rng = np.random.default_rng([number, *family.encode()])
    run, shapes = _FAMILIES[family](rng)
    dtype = jnp.bfloat16 if number % 3 == 2 else jnp.float32
    return run, [Shape(shape, dtype) for shape in shapes]


def _elements(family: str, number: int) -> int:
    return sum(int(np.prod(one.shape)) for one in _make(family, number)[1])


def _in_turn() -> dict[str, Callable[[], Program]]:
    """Return families in turn, from middling sizes to large ones; the smallest come last."""
    programs = {}
    for place in (*range(_VARIANTS // 3, _VARIANTS), *range(_VARIANTS // 3)):
        for family in _FAMILIES:
            number = sorted(range(_VARIANTS), key=partial(_elements, family))[place]
            programs[f"{family}__k{number:02d}"] = partial(_make, family, number)
    return programs


#: ``{"family__k07": () -> (function, shapes)}``; every third program is in bfloat16.
PROGRAMS = _in_turn()
globals().update(PROGRAMS)
