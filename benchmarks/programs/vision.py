"""Pictures, video and point sets: classifiers, detection, segmentation, generation, style."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import leaky_relu, relu, sigmoid

from benchmarks.programs.parts import (
    Forward,
    Programs,
    case,
    conv,
    family_of,
    max_pool,
    mean_pool,
    shape,
)

PROGRAMS: Programs = {}


@family_of(PROGRAMS, a=case(16, 64, 32, 256), e=case(32, 64, 48, 256, train=True, bf16=True))
def alexnet(b: int, hw: int, c: int, fc: int) -> Forward:
    """Large strided first kernels, pooling, two dense layers."""
    side = (hw // 4 - 1) // 2
    side = (side - 1) // 2
    shapes = [
        shape(b, hw, hw, 3),
        shape(11, 11, 3, c),
        shape(5, 5, c, 2 * c),
        shape(3, 3, 2 * c, 2 * c),
    ]
    shapes += [shape(side * side * 2 * c, fc), shape(fc, 256)]

    def f(x, w1, w2, w3, d1, d2):
        x = max_pool(relu(conv(x, w1, 4)), 3, 2)
        x = max_pool(relu(conv(x, w2)), 3, 2)
        return relu(relu(conv(x, w3)).reshape(b, -1) @ d1) @ d2

    return f, 1, shapes


@family_of(PROGRAMS, a=case(8, 28, 128, 2), d=case(16, 14, 64, 1, train=True))
def squeezenet(b: int, hw: int, c: int, layers: int) -> Forward:
    """Fire modules: squeeze by 1x1, expand by 1x1 and 3x3 side by side."""
    shapes = [shape(b, hw, hw, c)]
    for _ in range(layers):
        shapes += [shape(1, 1, c, c // 4), shape(1, 1, c // 4, c // 2), shape(3, 3, c // 4, c // 2)]

    def f(x, *w):
        for i in range(0, len(w), 3):
            s = relu(conv(x, w[i]))
            x = relu(jnp.concatenate([conv(s, w[i + 1]), conv(s, w[i + 2])], -1))
        return x.mean((1, 2))

    return f, 1, shapes


@family_of(PROGRAMS, a=case(8, 28, 32, 4, 2), d=case(8, 14, 32, 4, 1, train=True))
def inverted(b: int, hw: int, c: int, expand: int, layers: int) -> Forward:
    """Expand by 1x1, depthwise 3x3, project by 1x1, add."""
    shapes = [shape(b, hw, hw, c)]
    for _ in range(layers):
        shapes += [
            shape(1, 1, c, c * expand),
            shape(3, 3, 1, c * expand),
            shape(1, 1, c * expand, c),
        ]

    def f(x, *w):
        for i in range(0, len(w), 3):
            y = jnp.clip(conv(x, w[i]), 0, 6)
            x = x + conv(jnp.clip(conv(y, w[i + 1], 1, c * expand), 0, 6), w[i + 2])
        return x.mean((1, 2))

    return f, 1, shapes


@family_of(PROGRAMS, a=case(8, 28, 96, 4, 2), d=case(16, 14, 64, 4, 1, train=True))
def squeezexcite(b: int, hw: int, c: int, r: int, layers: int) -> Forward:
    """Convolution gated channel by channel by a small dense net of its means."""
    shapes = [shape(b, hw, hw, c)]
    for _ in range(layers):
        shapes += [shape(3, 3, c, c), shape(c, c // r), shape(c // r, c)]

    def f(x, *w):
        for i in range(0, len(w), 3):
            y = relu(conv(x, w[i]))
            x = y * sigmoid(relu(y.mean((1, 2)) @ w[i + 1]) @ w[i + 2])[:, None, None]
        return x.mean((1, 2))

    return f, 1, shapes


@family_of(PROGRAMS, a=case(8, 16, 128))
def pyramid(b: int, hw: int, c: int) -> Forward:
    """Means at three scales, each through 1x1 and stretched back, side by side."""
    shapes = [shape(b, hw, hw, c), *[shape(1, 1, c, c // 4)] * 3, shape(3, 3, c + 3 * (c // 4), 64)]

    def f(x, *w):
        parts = [x]
        for k, v in zip((hw, hw // 2, hw // 4), w[:3], strict=True):
            small = relu(conv(mean_pool(x, k), v))
            parts.append(jnp.repeat(jnp.repeat(small, k, 1), k, 2))
        return conv(jnp.concatenate(parts, -1), w[3])

    return f, 1, shapes


@family_of(PROGRAMS, c=case(32, 12, 64, 10, 16))
def capsules(b: int, hw: int, c: int, n: int, e: int) -> Forward:
    """Convolution cut into capsules, votes for n classes, two rounds of routing."""
    m = (hw // 2) ** 2 * (c // 8)
    shapes = [shape(b, hw, hw, 16), shape(5, 5, 16, c), shape(m, 8, n * e)]

    def f(x, w, votes):
        u = jnp.tanh(conv(x, w, 2)).reshape(b, m, 8)
        v = jnp.einsum("bmi,mio->bmo", u, votes).reshape(b, m, n, e)
        route = jnp.zeros((b, m, n), v.dtype)
        for _ in range(2):
            s = jnp.tanh(jnp.einsum("bmn,bmne->bne", jax.nn.softmax(route, -1), v))
            route = route + jnp.einsum("bmne,bne->bmn", v, s)
        return s

    return f, 1, shapes


def upconv(x, w):
    return lax.conv_transpose(x, w, (2, 2), "SAME")


@family_of(
    PROGRAMS,
    a=case(8, 64, (16, 64, 128, 256), 3, 20),
    d=case(8, 32, (16, 32, 64), 3, 20, train=True),
)
def yolo(b: int, hw: int, channels: tuple[int, ...], anchors: int, classes: int) -> Forward:
    """Strided convolutions, then boxes and classes of every cell."""
    shapes = [shape(b, hw, hw, channels[0])]
    shapes += [shape(3, 3, i, o) for i, o in itertools.pairwise(channels)]
    shapes.append(shape(1, 1, channels[-1], anchors * (5 + classes)))

    def f(x, *w):
        for v in w[:-1]:
            x = leaky_relu(conv(x, v, 2), 0.1)
        y = conv(x, w[-1])
        y = y.reshape(b, y.shape[1] * y.shape[2], anchors, 5 + classes)
        return jnp.concatenate([jax.nn.sigmoid(y[..., :5]), jax.nn.softmax(y[..., 5:], -1)], -1)

    return f, 1, shapes


@family_of(PROGRAMS, a=case(8, 16, 128, 21))
def ssdheads(b: int, hw: int, c: int, k: int) -> Forward:
    """Class scores at three scales, flattened and put side by side."""
    shapes = [
        shape(b, hw, hw, c),
        shape(3, 3, c, c),
        shape(3, 3, c, c),
        *[shape(3, 3, c, 4 * k)] * 3,
    ]

    def f(x, w1, w2, *head):
        y = relu(conv(x, w1, 2))
        z = relu(conv(y, w2, 2))
        parts = [conv(t, h).reshape(b, -1, k) for t, h in zip((x, y, z), head, strict=True)]
        return jax.nn.log_softmax(jnp.concatenate(parts, 1), -1)

    return f, 1, shapes


@family_of(PROGRAMS, d=case(8, 16, 32, 21, train=True))
def fcn(b: int, hw: int, c: int, classes: int) -> Forward:
    """Down by strided convolutions, up by transposed ones, a class per pixel."""
    shapes = [shape(b, hw, hw, c), shape(3, 3, c, 2 * c), shape(3, 3, 2 * c, 4 * c)]
    shapes += [shape(4, 4, 4 * c, c), shape(4, 4, c, classes)]

    def f(x, w1, w2, u1, u2):
        y = relu(conv(relu(conv(x, w1, 2)), w2, 2))
        return jax.nn.log_softmax(upconv(relu(upconv(y, u1)), u2), -1)

    return f, 1, shapes


@family_of(PROGRAMS, a=case(16, 128, 8, (128, 64, 32)))
def generator(b: int, z: int, hw: int, channels: tuple[int, ...]) -> Forward:
    """Dense, then transposed convolutions up to an image."""
    shapes = [shape(b, z), shape(z, hw * hw * channels[0])]
    shapes += [shape(4, 4, i, o) for i, o in itertools.pairwise(channels)]

    def f(x, d, *w):
        y = relu(x @ d).reshape(b, hw, hw, channels[0])
        for v in w:
            y = jnp.tanh(upconv(y, v))
        return y

    return f, 1, shapes


@family_of(PROGRAMS, a=case(16, 64, (8, 64, 128, 256)), d=case(32, 32, (8, 32, 64), train=True))
def discriminator(b: int, hw: int, channels: tuple[int, ...]) -> Forward:
    """Strided 4x4 convolutions with leaky units, one score."""
    last = hw // 2 ** (len(channels) - 1)
    shapes = [shape(b, hw, hw, channels[0])]
    shapes += [shape(4, 4, i, o) for i, o in itertools.pairwise(channels)]
    shapes.append(shape(last * last * channels[-1], 128))

    def f(x, *w):
        for v in w[:-1]:
            x = leaky_relu(conv(x, v, 2), 0.2)
        return x.reshape(b, -1) @ w[-1]

    return f, 1, shapes


@family_of(PROGRAMS, a=case(8, 32, 64, 2))
def style(b: int, hw: int, c: int, layers: int) -> Forward:
    """Instance-normalised convolutions and the Gram matrices of their outputs."""
    shapes = [shape(b, hw, hw, c), *[shape(3, 3, c, c)] * layers]

    def f(x, *w):
        grams = []
        for v in w:
            y = conv(x, v)
            mean = y.mean((1, 2), keepdims=True)
            x = relu((y - mean) * lax.rsqrt(((y - mean) ** 2).mean((1, 2), keepdims=True) + 1e-5))
            t = x.reshape(b, hw * hw, c)
            grams.append(jnp.einsum("bni,bnj->bij", t, t))
        return jnp.stack(grams)

    return f, 1, shapes


@family_of(PROGRAMS, a=case(2, 8, 24, 32, 1))
def video(b: int, t: int, hw: int, c: int, layers: int) -> Forward:
    """Convolution in space, then in time."""
    shapes = [shape(b, t, hw, hw, c)]
    for _ in range(layers):
        shapes += [shape(1, 3, 3, c, c), shape(3, 1, 1, c, c)]

    def f(x, *w):
        for v in w:
            x = relu(conv(x, v))
        return x.mean((1, 2, 3))

    return f, 1, shapes


@family_of(PROGRAMS, a=case(2, 16, 20, 64))
def slowfast(b: int, t: int, hw: int, c: int) -> Forward:
    """Few frames with many channels beside all frames with few."""
    k = c // 4
    shapes = [
        shape(b, t, hw, hw, 8),
        shape(1, 3, 3, 8, c),
        shape(3, 3, 3, 8, k),
        shape(4, 1, 1, k, k),
        shape(1, 3, 3, c + k, c),
    ]

    def f(x, w1, w2, side, w3):
        slow = relu(conv(x[:, ::4], w1))
        fast = relu(conv(x, w2))
        across = conv(fast, side, (4, 1, 1))
        return relu(conv(jnp.concatenate([slow, across], -1), w3)).mean((1, 2, 3))

    return f, 1, shapes


@family_of(PROGRAMS, a=case(8, 256, 64))
def edgepoints(b: int, n: int, c: int) -> Forward:
    """Soft neighbourhoods by distance, features of the differences."""
    shapes = [shape(b, n, 16), shape(16, c), shape(c, c), shape(c, c)]

    def f(x, w1, w2, w3):
        y = x @ w1
        square = (y**2).sum(-1)
        distance = square[:, :, None] - 2 * jnp.einsum("bnc,bmc->bnm", y, y) + square[:, None]
        around = jnp.einsum("bnm,bmc->bnc", jax.nn.softmax(-distance, -1), y)
        return relu((around - y) @ w2 + y @ w3).max(1)

    return f, 1, shapes


@family_of(PROGRAMS, a=case(4, 8, 64, 256, 4))
def tubelets(b: int, t: int, hw: int, d: int, h: int) -> Forward:
    """Video cut into blocks of 2x8x8, all attending to all."""
    n = (t // 2) * (hw // 8) ** 2
    shapes = [shape(b, t, hw, hw, 3), shape(2, 8, 8, 3, d), shape(d, 3 * d), shape(d, d)]

    def f(x, w, wqkv, wo):
        y = conv(x, w, (2, 8, 8), pad="VALID").reshape(b, n, d)
        q, k, v = jnp.split((y @ wqkv).reshape(b, n, 3 * h, d // h), 3, 2)
        s = jax.nn.softmax(jnp.einsum("bqhe,bkhe->bhqk", q, k), -1)
        return (y + jnp.einsum("bhqk,bkhe->bqhe", s, v).reshape(b, n, d) @ wo).mean(1)

    return f, 1, shapes


globals().update(PROGRAMS)
