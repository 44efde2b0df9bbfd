"""Small networks as they come from PyTorch: channels first, weights with outputs first."""

from __future__ import annotations

from typing import Any

import jax
from jax import lax
from jax.nn import relu

from benchmarks.programs.parts import (
    Forward,
    Programs,
    attend,
    case,
    family_of,
    heads,
    join,
    layer_norm,
    shape,
)

PROGRAMS: Programs = {}


def _conv(x: Any, w: Any, stride: int = 1, groups: int = 1) -> Any:
    """Convolution of NCHW by OIHW, or NCW by OIW."""
    space = "HW"[: x.ndim - 2]
    numbers = (f"NC{space}", f"OI{space}", f"NC{space}")
    return lax.conv_general_dilated(
        x, w, (stride,) * len(space), "SAME", dimension_numbers=numbers, feature_group_count=groups
    )


def _pool(x: Any) -> Any:
    window = (1, 1, *[2] * (x.ndim - 2))
    return lax.reduce_window(x, -float("inf"), lax.max, window, window, "VALID")


def _linear(x: Any, w: Any) -> Any:
    return x @ w.T


@family_of(PROGRAMS, a=case(64, 28, 16))
def torchlenet(b: int, side: int, c: int) -> Forward:
    """Two convolutions with pooling, three linear layers."""
    flat = 2 * c * (side // 4) ** 2
    shapes = [shape(b, 1, side, side), shape(c, 1, 5, 5), shape(2 * c, c, 5, 5)]
    shapes += [shape(128, flat), shape(96, 128), shape(16, 96)]

    def f(x, w1, w2, d1, d2, d3):
        x = _pool(relu(_conv(_pool(relu(_conv(x, w1))), w2))).reshape(b, -1)
        return _linear(relu(_linear(relu(_linear(x, d1)), d2)), d3)

    return f, 1, shapes


@family_of(PROGRAMS, a=case(8, 32, 32, 3))
def torchseparable(b: int, side: int, c: int, layers: int) -> Forward:
    """Depthwise 3x3 and 1x1, channels doubled by strides."""
    shapes = [shape(b, c, side, side)]
    for i in range(layers):
        shapes += [shape(c << i, 1, 3, 3), shape(c << (i + 1), c << i, 1, 1)]

    def f(x, *w):
        for i in range(0, len(w), 2):
            x = relu(_conv(relu(_conv(x, w[i], 2, x.shape[1])), w[i + 1]))
        return x.mean((2, 3))

    return f, 1, shapes


@family_of(PROGRAMS, a=case(16, 64, 96, 64))
def torchtextcnn(b: int, n: int, d: int, c: int) -> Forward:
    """Convolutions of three widths over a text, the largest value of each channel."""
    shapes = [shape(b, d, n), *(shape(c, d, k) for k in (3, 4, 5)), shape(32, 3 * c)]

    def f(x, w1, w2, w3, out):
        found = [relu(_conv(x, w)).max(2) for w in (w1, w2, w3)]
        return _linear(jax.numpy.concatenate(found, 1), out)

    return f, 1, shapes


@family_of(PROGRAMS, a=case(128, 256, 384, train=True))
def torchperceptron(b: int, d: int, h: int) -> Forward:
    """Three linear layers."""
    shapes = [shape(b, d), shape(h, d), shape(h, h), shape(d, h)]

    def f(x, w1, w2, w3):
        return _linear(relu(_linear(relu(_linear(x, w1)), w2)), w3)

    return f, 1, shapes


@family_of(PROGRAMS, a=case(4, 96, 128, 4))
def torchencoder(b: int, n: int, d: int, h: int) -> Forward:
    """Layer of a transformer: projections in one weight, as in nn.MultiheadAttention."""
    shapes = [
        shape(b, n, d),
        shape(3 * d, d),
        shape(d, d),
        shape(4 * d, d),
        shape(d, 4 * d),
        *[shape(d)] * 4,
    ]

    def f(x, qkv, out, up, down, g1, b1, g2, b2):
        q, k, v = (
            heads(one, h) for one in jax.numpy.split(_linear(layer_norm(x, g1, b1), qkv), 3, -1)
        )
        x = x + _linear(join(attend(q, k, v)), out)
        return x + _linear(jax.nn.gelu(_linear(layer_norm(x, g2, b2), up)), down)

    return f, 1, shapes


globals().update(PROGRAMS)
