"""Video, volumes and point sets."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import relu

from benchmarks.programs.parts import Forward, case, family, shape


def conv3(x, w, stride=1):
    return lax.conv_general_dilated(x, w, (stride,) * 3, "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC"))


def factored_video(b: int, t: int, hw: int, c: int, layers: int) -> Forward:
    """Convolution in space, then in time."""
    shapes = [shape(b, t, hw, hw, c)]
    for _ in range(layers):
        shapes += [shape(1, 3, 3, c, c), shape(3, 1, 1, c, c)]

    def f(x, *w):
        for v in w:
            x = relu(conv3(x, v))
        return x.mean((1, 2, 3))

    return f, 1, shapes


def slow_and_fast(b: int, t: int, hw: int, c: int) -> Forward:
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
        slow, fast = relu(conv3(x[:, ::4], w1)), relu(conv3(x, w2))
        across = lax.conv_general_dilated(
            fast, side, (4, 1, 1), "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC")
        )
        return relu(conv3(jnp.concatenate([slow, across], -1), w3)).mean((1, 2, 3))

    return f, 1, shapes


def point_net(b: int, n: int, c: int) -> Forward:
    """A learned rotation of each point set, shared dense layers, the strongest response."""
    shapes = [shape(b, n, 8), shape(8, c), shape(c, 64), shape(8, c), shape(c, 2 * c), shape(2 * c, 128)]

    def f(x, a1, a2, w1, w2, out):
        turn = (relu(x @ a1).max(1) @ a2).reshape(b, 8, 8)
        y = relu(relu(jnp.einsum("bni,bij->bnj", x, turn) @ w1) @ w2)
        return y.max(1) @ out

    return f, 1, shapes


def edge_points(b: int, n: int, c: int) -> Forward:
    """Soft neighbourhoods by distance, features of the differences."""
    shapes = [shape(b, n, 16), shape(16, c), shape(c, c), shape(c, c)]

    def f(x, w1, w2, w3):
        y = x @ w1
        square = (y**2).sum(-1)
        distance = square[:, :, None] - 2 * jnp.einsum("bnc,bmc->bnm", y, y) + square[:, None]
        around = jnp.einsum("bnm,bmc->bnc", jax.nn.softmax(-distance, -1), y)
        return relu((around - y) @ w2 + y @ w3).max(1)

    return f, 1, shapes


def tubelets(b: int, t: int, hw: int, d: int, h: int) -> Forward:
    """Video cut into blocks of 2x8x8, all attending to all."""
    n = (t // 2) * (hw // 8) ** 2
    shapes = [shape(b, t, hw, hw, 3), shape(2, 8, 8, 3, d), shape(d, 3 * d), shape(d, d)]

    def f(x, w, wqkv, wo):
        y = lax.conv_general_dilated(x, w, (2, 8, 8), "VALID", dimension_numbers=("NDHWC", "DHWIO", "NDHWC"))
        y = y.reshape(b, n, d)
        q, k, v = jnp.split((y @ wqkv).reshape(b, n, 3 * h, d // h), 3, 2)
        s = jax.nn.softmax(jnp.einsum("bqhe,bkhe->bhqk", q, k), -1)
        return (y + jnp.einsum("bhqk,bkhe->bqhe", s, v).reshape(b, n, d) @ wo).mean(1)

    return f, 1, shapes


def spectrogram(b: int, frames: int, width: int, bins: int, c: int) -> Forward:
    """Frames through cosine and sine matrices, power, bands, two convolutions."""
    shapes = [
        shape(b, frames, width),
        shape(width, bins),
        shape(width, bins),
        shape(bins, 64),
        shape(3, 3, 1, c),
        shape(3, 3, c, c),
    ]

    def f(x, cosine, sine, bands, w1, w2):
        power = (x @ cosine) ** 2 + (x @ sine) ** 2
        y = jnp.log(power @ bands + 1)[..., None]
        for w in (w1, w2):
            y = relu(lax.conv_general_dilated(y, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
        return y.mean((1, 2))

    return f, 1, shapes


PROGRAMS = {
    **family(
        "video",
        factored_video,
        a=case(2, 8, 24, 32, 1),
        b=case(8, 8, 24, 32, 1),
        c=case(4, 8, 16, 64, 2, bf16=True),
        d=case(2, 8, 12, 32, 1, train=True),
    ),
    **family(
        "slowfast", slow_and_fast, a=case(2, 16, 20, 64), b=case(8, 16, 20, 64), c=case(4, 16, 16, 96, bf16=True)
    ),
    **family(
        "pointnet",
        point_net,
        a=case(16, 512, 64),
        b=case(64, 512, 64),
        c=case(32, 1024, 128, bf16=True),
        d=case(16, 256, 64, train=True),
    ),
    **family(
        "edgepoints",
        edge_points,
        a=case(8, 256, 64),
        b=case(32, 256, 64),
        c=case(16, 384, 128, bf16=True),
        d=case(8, 128, 64, train=True),
    ),
    **family(
        "tubelets",
        tubelets,
        a=case(4, 8, 64, 256, 4),
        b=case(16, 8, 64, 256, 4),
        c=case(8, 8, 48, 384, 6, bf16=True),
        d=case(4, 4, 32, 128, 2, train=True),
    ),
    **family(
        "spectrogram",
        spectrogram,
        a=case(8, 64, 256, 128, 32),
        b=case(32, 64, 256, 128, 32),
        c=case(16, 96, 400, 201, 64, bf16=True),
        d=case(8, 48, 128, 64, 16, train=True),
    ),
}
globals().update(PROGRAMS)
