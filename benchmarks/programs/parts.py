"""Pieces of programs: shapes in place of arrays, convolutions, attention, training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

Shape = jax.ShapeDtypeStruct
#: A program: a function of arrays, and the shapes it is traced with.
Program = tuple[Callable[..., Any], list[Shape]]
#: What a family's function returns: the forward pass, how many of the shapes are inputs (the rest
#: are weights), and the shapes.
Forward = tuple[Callable[..., Any], int, list[Shape]]
_Build: TypeAlias = Callable[..., Forward]
#: Functions without arguments that make a program, by its name.
Programs = dict[str, Callable[[], Program]]


@dataclass(frozen=True)
class Case:
    """Variant of a family: its sizes, the precision, and whether it is a training step."""

    sizes: tuple[Any, ...]
    train: bool = False
    bf16: bool = False


def case(*sizes: Any, train: bool = False, bf16: bool = False) -> Case:
    return Case(sizes, train, bf16)


def shape(*dims: int) -> Shape:
    return Shape(dims, jnp.float32)


def training_step(forward: Callable[..., Any], inputs: int) -> Callable[..., Any]:
    """Return a step of gradient descent on the weights for the mean square of the outputs."""

    def step(*args: Any) -> tuple[Any, ...]:
        given = args[:inputs]
        weights = args[inputs:]

        def loss(weights: tuple[Any, ...]) -> Any:
            return (forward(*given, *weights).astype(jnp.float32) ** 2).mean()

        value, slopes = jax.value_and_grad(loss)(weights)
        return (
            value,
            *[w - jnp.asarray(0.01, w.dtype) * g for w, g in zip(weights, slopes, strict=True)],
        )

    return step


def _program(build: Callable[..., Forward], which: Case) -> Program:
    forward, inputs, shapes = build(*which.sizes)
    if which.bf16:
        shapes = [
            Shape(s.shape, jnp.bfloat16 if s.dtype == jnp.float32 else s.dtype) for s in shapes
        ]
    return (training_step(forward, inputs) if which.train else forward), shapes


def family(name: str, build: Callable[..., Forward], **cases: Case) -> Programs:
    """Return ``{"name__variant": ...}``; a training step is ``name_train__variant``."""
    programs: Programs = {}
    for variant, which in cases.items():

        def make(which: Case = which) -> Program:
            return _program(build, which)

        full = f"{name}_train__{variant}" if which.train else f"{name}__{variant}"
        make.__name__ = make.__qualname__ = full
        programs[full] = make
    return programs


def family_of(programs: Programs, **cases: Case | int) -> Callable[[_Build], _Build]:
    """Enter variants of the decorated family; a number is ``a`` with that first size."""

    def enter(build: _Build) -> _Build:
        whole: dict[str, Case] = {}
        for variant, one in cases.items():
            whole[variant] = (
                one
                if isinstance(one, Case)
                else replace(whole["a"], sizes=(one, *whole["a"].sizes[1:]))
            )
        programs.update(family(build.__name__, build, **whole))
        return build

    return enter


def conv(
    x: Any,
    w: Any,
    stride: int | tuple[int, ...] = 1,
    groups: int = 1,
    dilation: int = 1,
    pad: str = "SAME",
) -> Any:
    """Convolution over the middle dimensions: NWC, NHWC or NDHWC by the rank of ``x``."""
    middle = {3: "W", 4: "HW", 5: "DHW"}[x.ndim]
    numbers = (f"N{middle}C", f"{middle}IO", f"N{middle}C")
    n = len(middle)
    steps = stride if isinstance(stride, tuple) else (stride,) * n
    return lax.conv_general_dilated(
        x,
        w,
        steps,
        pad,
        rhs_dilation=(dilation,) * n,
        dimension_numbers=numbers,
        feature_group_count=groups,
    )


def max_pool(x: Any, k: int = 2, stride: int | None = None) -> Any:
    window = (1, *[k] * (x.ndim - 2), 1)
    steps = (1, *[stride or k] * (x.ndim - 2), 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, steps, "VALID")


def mean_pool(x: Any, k: int) -> Any:
    b, h, w, c = x.shape
    return x.reshape(b, h // k, k, w // k, k, c).mean((2, 4))


def norm(x: Any, gain: Any) -> Any:
    """Root-mean-square normalisation of the last dimension."""
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain


def layer_norm(x: Any, gain: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * gain + bias


def heads(x: Any, h: int) -> Any:
    """``(batch, tokens, features)`` to ``(batch, heads, tokens, features / heads)``."""
    b, n, d = x.shape
    return x.reshape(b, n, h, d // h).transpose(0, 2, 1, 3)


def join(x: Any) -> Any:
    b, h, n, e = x.shape
    return x.transpose(0, 2, 1, 3).reshape(b, n, h * e)


def attend(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    s = jnp.einsum("bhqe,bhke->bhqk", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        s = jnp.where(mask, s, -1e9)
    return jnp.einsum("bhqk,bhke->bhqe", jax.nn.softmax(s, -1), v)


def causal(n: int) -> Any:
    return lax.broadcasted_iota(jnp.int32, (n, n), 0) >= lax.broadcasted_iota(jnp.int32, (n, n), 1)
