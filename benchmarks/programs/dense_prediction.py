"""Programs with an image (or its parts) as the answer: detection, segmentation, generation, style."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import leaky_relu, relu

from benchmarks.programs.parts import Forward, case, conv, family, shape


def upconv(x, w):
    return lax.conv_transpose(x, w, (2, 2), "SAME")


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


def ssd_heads(b: int, hw: int, c: int, k: int) -> Forward:
    """Class scores at three scales, flattened and put side by side."""
    shapes = [shape(b, hw, hw, c), shape(3, 3, c, c), shape(3, 3, c, c), *[shape(3, 3, c, 4 * k)] * 3]

    def f(x, w1, w2, *head):
        y = relu(conv(x, w1, 2))
        z = relu(conv(y, w2, 2))
        parts = [conv(t, h).reshape(b, -1, k) for t, h in zip((x, y, z), head, strict=True)]
        return jax.nn.log_softmax(jnp.concatenate(parts, 1), -1)

    return f, 1, shapes


def fcn(b: int, hw: int, c: int, classes: int) -> Forward:
    """Down by strided convolutions, up by transposed ones, a class per pixel."""
    shapes = [shape(b, hw, hw, c), shape(3, 3, c, 2 * c), shape(3, 3, 2 * c, 4 * c)]
    shapes += [shape(4, 4, 4 * c, c), shape(4, 4, c, classes)]

    def f(x, w1, w2, u1, u2):
        y = relu(conv(relu(conv(x, w1, 2)), w2, 2))
        return jax.nn.log_softmax(upconv(relu(upconv(y, u1)), u2), -1)

    return f, 1, shapes


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


def vector_quantised(b: int, hw: int, c: int, codes: int) -> Forward:
    """Convolution, nearest code by distance, soft choice, transposed convolution."""
    shapes = [shape(b, hw, hw, 3), shape(4, 4, 3, c), shape(3, 3, c, c), shape(codes, c), shape(4, 4, c, 3)]

    def f(x, w1, w2, book, u):
        y = conv(relu(conv(x, w1, 2)), w2).reshape(b, (hw // 2) ** 2, c)
        near = 2 * jnp.einsum("bnc,kc->bnk", y, book) - (book**2).sum(-1)
        q = jnp.einsum("bnk,kc->bnc", jax.nn.softmax(near, -1), book)
        return upconv(q.reshape(b, hw // 2, hw // 2, c), u)

    return f, 1, shapes


def subpixel(b: int, hw: int, c: int, r: int) -> Forward:
    """5x5 and 3x3 at low resolution, then channels unfolded into pixels."""
    shapes = [shape(b, hw, hw, 3), shape(5, 5, 3, c), shape(3, 3, c, c // 2), shape(3, 3, c // 2, 3 * r * r)]

    def f(x, w1, w2, w3):
        y = conv(jnp.tanh(conv(jnp.tanh(conv(x, w1)), w2)), w3).reshape(b, hw, hw, r, r, 3)
        return y.transpose(0, 1, 3, 2, 4, 5).reshape(b, hw * r, hw * r, 3)

    return f, 1, shapes


def nonlocal_block(b: int, hw: int, c: int) -> Forward:
    """Convolution and attention among all positions, added."""
    k = c // 2
    shapes = [shape(b, hw, hw, c), shape(3, 3, c, c), *[shape(1, 1, c, k)] * 3, shape(1, 1, k, c)]

    def f(x, w, wq, wk, wv, wo):
        x = relu(conv(x, w))
        q, key, v = (conv(x, t).reshape(b, hw * hw, k) for t in (wq, wk, wv))
        s = jax.nn.softmax(jnp.einsum("bqc,bkc->bqk", q, key), -1)
        return x + conv(jnp.einsum("bqk,bkc->bqc", s, v).reshape(b, hw, hw, k), wo)

    return f, 1, shapes


def correlation(b: int, hw: int, c: int) -> Forward:
    """Two images through one tower, every position of one against every position of the other."""
    shapes = [shape(b, hw, hw, c), shape(b, hw, hw, c), shape(3, 3, c, c), shape(3, 3, hw * hw, 32)]

    def f(x, y, w, head):
        p, q = (relu(conv(t, w)).reshape(b, hw * hw, c) for t in (x, y))
        volume = jnp.einsum("bnc,bmc->bnm", p, q).reshape(b, hw, hw, hw * hw)
        return conv(relu(volume), head)

    return f, 2, shapes


PROGRAMS = {
    **family(
        "yolo",
        yolo,
        a=case(8, 64, (16, 64, 128, 256), 3, 20),
        b=case(32, 64, (16, 64, 128, 256), 3, 20),
        c=case(16, 96, (16, 96, 192), 5, 80, bf16=True),
        d=case(8, 32, (16, 32, 64), 3, 20, train=True),
    ),
    **family(
        "ssdheads", ssd_heads, a=case(8, 16, 128, 21), b=case(32, 16, 128, 21), c=case(16, 32, 64, 91, bf16=True)
    ),
    **family(
        "fcn",
        fcn,
        a=case(8, 32, 32, 21),
        b=case(32, 32, 32, 21),
        c=case(8, 64, 24, 32, bf16=True),
        d=case(8, 16, 32, 21, train=True),
    ),
    **family(
        "generator",
        generator,
        a=case(16, 128, 8, (128, 64, 32)),
        b=case(64, 128, 8, (128, 64, 32)),
        c=case(32, 256, 4, (256, 128, 64), bf16=True),
        d=case(32, 64, 8, (64, 32), train=True),
    ),
    **family(
        "discriminator",
        discriminator,
        a=case(16, 64, (8, 64, 128, 256)),
        b=case(64, 64, (8, 64, 128, 256)),
        c=case(64, 32, (16, 128, 256), bf16=True),
        d=case(32, 32, (8, 32, 64), train=True),
    ),
    **family(
        "style",
        style,
        a=case(8, 32, 64, 2),
        b=case(24, 32, 64, 2),
        c=case(16, 24, 128, 2, bf16=True),
        d=case(8, 24, 32, 1, train=True),
    ),
    **family(
        "quantised",
        vector_quantised,
        a=case(8, 32, 64, 512),
        b=case(32, 32, 64, 512),
        c=case(16, 48, 128, 256, bf16=True),
    ),
    **family(
        "subpixel",
        subpixel,
        a=case(8, 48, 64, 3),
        b=case(32, 48, 64, 3),
        c=case(16, 64, 48, 2, bf16=True),
        d=case(8, 32, 32, 2, train=True),
    ),
    **family(
        "nonlocal",
        nonlocal_block,
        a=case(8, 16, 128),
        b=case(32, 16, 128),
        c=case(16, 20, 96, bf16=True),
        d=case(8, 12, 64, train=True),
    ),
    **family("correlation", correlation, a=case(8, 12, 64), b=case(32, 12, 64), c=case(16, 16, 96, bf16=True)),
}
globals().update(PROGRAMS)
