"""Image classifiers: plain, squeezed, grouped, shuffled, depthwise, gated and large-kernel convolutions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.nn import relu, sigmoid

from benchmarks.programs.parts import Forward, case, conv, family, layer_norm, max_pool, mean_pool, shape


def alexnet(b: int, hw: int, c: int, fc: int) -> Forward:
    """Large strided first kernels, pooling, two dense layers."""
    side = (hw // 4 - 1) // 2
    side = (side - 1) // 2
    shapes = [shape(b, hw, hw, 3), shape(11, 11, 3, c), shape(5, 5, c, 2 * c), shape(3, 3, 2 * c, 2 * c)]
    shapes += [shape(side * side * 2 * c, fc), shape(fc, 256)]

    def f(x, w1, w2, w3, d1, d2):
        x = max_pool(relu(conv(x, w1, 4)), 3, 2)
        x = max_pool(relu(conv(x, w2)), 3, 2)
        return relu(relu(conv(x, w3)).reshape(b, -1) @ d1) @ d2

    return f, 1, shapes


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


def grouped(b: int, hw: int, c: int, groups: int, layers: int) -> Forward:
    """1x1, grouped 3x3, 1x1."""
    shapes = [shape(b, hw, hw, c)]
    for _ in range(layers):
        shapes += [shape(1, 1, c, c), shape(3, 3, c // groups, c), shape(1, 1, c, c)]

    def f(x, *w):
        for i in range(0, len(w), 3):
            x = relu(conv(relu(conv(relu(conv(x, w[i])), w[i + 1], 1, groups)), w[i + 2]))
        return x.mean((1, 2))

    return f, 1, shapes


def shufflenet(b: int, hw: int, c: int, groups: int, layers: int) -> Forward:
    """Channels shuffled between groups by reshape, transpose, reshape."""
    shapes = [shape(b, hw, hw, c)]
    for _ in range(layers):
        shapes += [shape(1, 1, c // groups, c), shape(3, 3, 1, c)]

    def f(x, *w):
        for i in range(0, len(w), 2):
            y = relu(conv(x, w[i], 1, groups)).reshape(b, hw, hw, groups, c // groups)
            x = x + conv(y.swapaxes(3, 4).reshape(b, hw, hw, c), w[i + 1], 1, c)
        return x.mean((1, 2))

    return f, 1, shapes


def inverted(b: int, hw: int, c: int, expand: int, layers: int) -> Forward:
    """Expand by 1x1, depthwise 3x3, project by 1x1, add."""
    shapes = [shape(b, hw, hw, c)]
    for _ in range(layers):
        shapes += [shape(1, 1, c, c * expand), shape(3, 3, 1, c * expand), shape(1, 1, c * expand, c)]

    def f(x, *w):
        for i in range(0, len(w), 3):
            y = jnp.clip(conv(x, w[i]), 0, 6)
            x = x + conv(jnp.clip(conv(y, w[i + 1], 1, c * expand), 0, 6), w[i + 2])
        return x.mean((1, 2))

    return f, 1, shapes


def squeeze_excite(b: int, hw: int, c: int, r: int, layers: int) -> Forward:
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


def multibranch(b: int, hw: int, c: int, layers: int) -> Forward:
    """3x3, 1x1 and identity added."""
    shapes = [shape(b, hw, hw, c)]
    for _ in range(layers):
        shapes += [shape(3, 3, c, c), shape(1, 1, c, c)]

    def f(x, *w):
        for i in range(0, len(w), 2):
            x = relu(conv(x, w[i]) + conv(x, w[i + 1]) + x)
        return x.mean((1, 2))

    return f, 1, shapes


def convmixer(b: int, hw: int, p: int, c: int, layers: int) -> Forward:
    """Patches, then 7x7 depthwise with a skip and 1x1 over channels."""
    shapes = [shape(b, hw, hw, 3), shape(p, p, 3, c)]
    for _ in range(layers):
        shapes += [shape(7, 7, 1, c), shape(1, 1, c, c)]

    def f(x, *w):
        x = jax.nn.gelu(conv(x, w[0], p, pad="VALID"))
        for i in range(1, len(w), 2):
            x = jax.nn.gelu(conv(x + jax.nn.gelu(conv(x, w[i], 1, c)), w[i + 1]))
        return x.mean((1, 2))

    return f, 1, shapes


def pyramid_pooling(b: int, hw: int, c: int) -> Forward:
    """Means at three scales, each through 1x1 and stretched back, side by side."""
    shapes = [shape(b, hw, hw, c), *[shape(1, 1, c, c // 4)] * 3, shape(3, 3, c + 3 * (c // 4), 64)]

    def f(x, *w):
        parts = [x]
        for k, v in zip((hw, hw // 2, hw // 4), w[:3], strict=True):
            small = relu(conv(mean_pool(x, k), v))
            parts.append(jnp.repeat(jnp.repeat(small, k, 1), k, 2))
        return conv(jnp.concatenate(parts, -1), w[3])

    return f, 1, shapes


def bilinear_pooling(b: int, hw: int, c: int, k: int) -> Forward:
    """Outer products of two convolutions summed over positions, signed root, dense."""
    shapes = [shape(b, hw, hw, c), shape(3, 3, c, k), shape(3, 3, c, k), shape(k * k, 256)]

    def f(x, u, v, d):
        p, q = relu(conv(x, u)).reshape(b, hw * hw, k), relu(conv(x, v)).reshape(b, hw * hw, k)
        z = jnp.einsum("bni,bnj->bij", p, q).reshape(b, k * k)
        return (jnp.sign(z) * jnp.sqrt(jnp.abs(z) + 1e-3)) @ d

    return f, 1, shapes


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


def permutator(b: int, hw: int, c: int, s: int, layers: int) -> Forward:
    """Dense layers along height, width and channels in turn, with parts of the channels folded in."""
    shapes = [shape(b, hw, hw, c), shape(c), shape(c)]
    for _ in range(layers):
        shapes += [shape(hw * s, hw * s), shape(hw * s, hw * s), shape(c, c)]

    def f(x, g, h, *w):
        for i in range(0, len(w), 3):
            y = layer_norm(x, g, h).reshape(b, hw, hw, c // s, s)
            high = (y.transpose(0, 2, 3, 1, 4).reshape(b, hw, c // s, hw * s) @ w[i]).reshape(b, hw, c // s, hw, s)
            wide = (y.transpose(0, 1, 3, 2, 4).reshape(b, hw, c // s, hw * s) @ w[i + 1]).reshape(
                b, hw, c // s, hw, s
            )
            mixed = high.transpose(0, 3, 1, 2, 4) + wide.transpose(0, 1, 3, 2, 4)
            x = x + mixed.reshape(b, hw, hw, c) + y.reshape(b, hw, hw, c) @ w[i + 2]
        return x.mean((1, 2))

    return f, 1, shapes


PROGRAMS = {
    **family(
        "alexnet",
        alexnet,
        a=case(16, 64, 32, 256),
        b=case(64, 64, 32, 256),
        c=case(32, 96, 48, 512, bf16=True),
        d=case(16, 64, 32, 256, train=True),
        e=case(32, 64, 48, 256, train=True, bf16=True),
    ),
    **family(
        "squeezenet",
        squeezenet,
        a=case(8, 28, 128, 2),
        b=case(32, 28, 128, 2),
        c=case(16, 14, 256, 2, bf16=True),
        d=case(16, 14, 64, 1, train=True),
    ),
    **family(
        "grouped",
        grouped,
        a=case(8, 28, 64, 4, 2),
        b=case(24, 28, 64, 4, 2),
        c=case(16, 14, 256, 8, 1, bf16=True),
        d=case(8, 14, 64, 2, 1, train=True),
    ),
    **family(
        "shufflenet",
        shufflenet,
        a=case(8, 28, 96, 4, 2),
        b=case(32, 28, 96, 4, 2),
        c=case(16, 14, 192, 3, 2, bf16=True),
    ),
    **family(
        "inverted",
        inverted,
        a=case(8, 28, 32, 4, 2),
        b=case(32, 28, 32, 4, 2),
        c=case(16, 14, 64, 6, 2, bf16=True),
        d=case(8, 14, 32, 4, 1, train=True),
    ),
    **family(
        "squeezexcite",
        squeeze_excite,
        a=case(8, 28, 96, 4, 2),
        b=case(32, 28, 96, 4, 2),
        c=case(32, 14, 192, 8, 2, bf16=True),
        d=case(16, 14, 64, 4, 1, train=True),
    ),
    **family(
        "multibranch",
        multibranch,
        a=case(8, 28, 64, 2),
        b=case(32, 28, 64, 2),
        c=case(32, 14, 160, 2, bf16=True),
        d=case(8, 14, 64, 1, train=True),
    ),
    **family(
        "convmixer",
        convmixer,
        a=case(16, 64, 8, 128, 2),
        b=case(64, 64, 8, 128, 2),
        c=case(16, 112, 7, 256, 1, bf16=True),
    ),
    **family("pyramid", pyramid_pooling, a=case(8, 16, 128), b=case(32, 16, 128), c=case(16, 24, 192)),
    **family(
        "bilinear",
        bilinear_pooling,
        a=case(16, 14, 128, 64),
        b=case(64, 14, 128, 64),
        c=case(32, 20, 96, 32, bf16=True),
        d=case(16, 14, 64, 32, train=True),
    ),
    **family(
        "capsules", capsules, a=case(16, 16, 64, 16, 16), b=case(64, 16, 64, 16, 16), c=case(32, 12, 64, 10, 16)
    ),
    **family(
        "permutator",
        permutator,
        a=case(16, 16, 128, 8, 1),
        b=case(64, 16, 128, 8, 1),
        c=case(32, 14, 192, 12, 1, bf16=True),
        d=case(16, 16, 64, 4, 1, train=True),
    ),
}
globals().update(PROGRAMS)  # so that `benchmarks.programs.convolutional:alexnet__a` names one
