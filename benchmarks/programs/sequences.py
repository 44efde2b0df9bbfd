"""Sequences by convolution, gating, Fourier and state-space mixing, without attention."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.nn import relu

from benchmarks.programs.parts import Forward, Programs, case, conv, family_of, norm, shape

PROGRAMS: Programs = {}


@family_of(PROGRAMS, a=case(32, 64, 256, 128), d=case(32, 48, 128, 64, train=True))
def textcnn(b: int, n: int, d: int, c: int) -> Forward:
    """Convolutions of widths 3, 4 and 5 over words, the strongest response of each, dense."""
    shapes = [shape(b, n, d), shape(3, d, c), shape(4, d, c), shape(5, d, c), shape(3 * c, 128)]

    def f(x, w3, w4, w5, out):
        return jnp.concatenate([relu(conv(x, w)).max(1) for w in (w3, w4, w5)], -1) @ out

    return f, 1, shapes


@family_of(
    PROGRAMS,
    a=case(8, 256, 128, 2),
    b=32,
    c=case(16, 512, 192, 1, bf16=True),
    d=case(8, 128, 64, 1, train=True),
)
def temporal(b: int, n: int, c: int, layers: int) -> Forward:
    """Pairs of dilated convolutions with a skip."""
    shapes = [shape(b, n, c), *[shape(3, c, c)] * (2 * layers)]

    def f(x, *w):
        for i in range(layers):
            y = relu(conv(x, w[2 * i], dilation=2**i))
            x = relu(x + conv(y, w[2 * i + 1], dilation=2**i))
        return x.mean(1)

    return f, 1, shapes


@family_of(PROGRAMS, a=case(8, 256, 128, 11, 2), b=32, d=case(8, 128, 64, 7, 1, train=True))
def separable(b: int, n: int, c: int, k: int, layers: int) -> Forward:
    """Depthwise along time, then pointwise (speech recognition), scores of letters."""
    shapes = [shape(b, n, c)]
    for _ in range(layers):
        shapes += [shape(k, 1, c), shape(1, c, c)]
    shapes.append(shape(1, c, 32))

    def f(x, *w):
        for i in range(0, len(w) - 1, 2):
            x = relu(conv(conv(x, w[i], 1, 1 * c), w[i + 1])) + x
        return jax.nn.log_softmax(conv(x, w[-1]), -1)

    return f, 1, shapes


@family_of(PROGRAMS, a=case(8, 128, 256, 1), b=32)
def gatedmix(b: int, n: int, d: int, layers: int) -> Forward:
    """Half of the features, mixed along the sequence, gates the other half."""
    shapes = [shape(b, n, d), shape(d), shape(d)]
    for _ in range(layers):
        shapes += [shape(d, 2 * d), shape(n, n), shape(d, d)]

    def f(x, g, h, *w):
        for i in range(0, len(w), 3):
            u, v = jnp.split(jax.nn.gelu(norm(x, g) @ w[i]), 2, -1)
            x = x + (u * jnp.einsum("mn,bnd->bmd", w[i + 1], norm(v, h))) @ w[i + 2]
        return x

    return f, 1, shapes


@family_of(PROGRAMS, a=case(8, 128, 256), b=32)
def fourier(b: int, n: int, d: int) -> Forward:
    """The two-dimensional Fourier transform by products with its matrices, then dense layers."""
    shapes = [
        shape(b, n, d),
        shape(n, n),
        shape(n, n),
        shape(d, d),
        shape(d, d),
        shape(d, 2 * d),
        shape(2 * d, d),
    ]

    def f(x, cn, sn, cd, sd, w1, w2):
        real = jnp.einsum("mn,bnd->bmd", cn, x @ cd) - jnp.einsum("mn,bnd->bmd", sn, x @ sd)
        x = x + real
        return x + jax.nn.gelu(x @ w1) @ w2

    return f, 1, shapes


@family_of(PROGRAMS, a=case(8, 64, 128, 8), b=32)
def statespace(b: int, n: int, d: int, s: int) -> Forward:
    """A diagonal state-space model unrolled into a matrix per feature."""
    shapes = [shape(b, n, d), shape(d, s), shape(d, s), shape(d, s), shape(d, d)]

    def f(x, rate, inward, outward, w):
        steps = jnp.arange(n).astype(x.dtype)
        kernel = jnp.einsum(
            "ds,nds->nd", inward * outward, jnp.exp(-steps[:, None, None] * jax.nn.softplus(rate))
        )
        gap = jnp.arange(n)[:, None] - jnp.arange(n)[None]
        matrix = jnp.where((gap >= 0)[..., None], kernel[jnp.abs(gap)], 0)
        return x + jax.nn.silu(jnp.einsum("mnd,bnd->bmd", matrix, x)) @ w

    return f, 1, shapes


@family_of(PROGRAMS, a=case(8, 64, 256, 4), b=32)
def synthesiser(b: int, n: int, d: int, h: int) -> Forward:
    """Scores made from each token alone; no keys."""
    shapes = [shape(b, n, d), shape(d, d), shape(d, h * n), shape(d, d), shape(d, d)]

    def f(x, w1, w2, wv, wo):
        s = (relu(x @ w1) @ w2).reshape(b, n, h, n)
        v = (x @ wv).reshape(b, n, h, d // h)
        return x + jnp.einsum("bqhk,bkhe->bqhe", jax.nn.softmax(s, -1), v).reshape(b, n, d) @ wo

    return f, 1, shapes


@family_of(PROGRAMS, a=case(4, 256, 32, 4, 64), b=16)
def chunked(b: int, n: int, k: int, h: int, e: int) -> Forward:
    """Linear attention with decay, chunk by chunk: inside by a matrix, between by states."""
    c = n // k
    d = h * e
    shapes = [shape(b, n, d), shape(d, 3 * d), shape(d, h), shape(d, d)]

    def f(x, wqkv, wa, wo):
        q, key, v = (t.reshape(b, c, k, h, e) for t in jnp.split(x @ wqkv, 3, -1))
        a = jnp.cumsum(-jax.nn.softplus(x @ wa).reshape(b, c, k, h), 2)
        inside = jnp.einsum("bcqhe,bckhe->bchqk", q, key)
        o = jnp.einsum(
            "bchqk,bckhe->bcqhe", inside * jnp.exp(a).transpose(0, 1, 3, 2)[:, :, :, :, None], v
        )
        state = jnp.cumsum(jnp.einsum("bckhe,bckhf->bchef", key, v), 1)
        return x + (o + jnp.einsum("bcqhe,bchef->bcqhf", q, state)).reshape(b, n, d) @ wo

    return f, 1, shapes


globals().update(PROGRAMS)
