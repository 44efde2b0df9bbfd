"""Forms of attention: shared keys, windows, caches, low rank, positions."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from benchmarks.programs.parts import (
    Forward,
    Programs,
    attend,
    case,
    causal,
    conv,
    family_of,
    heads,
    join,
    layer_norm,
    norm,
    shape,
)

PROGRAMS: Programs = {}


def rotate(x):
    """Rotary positions: halves of the features turned by an angle of the position."""
    n = x.shape[-2]
    e = x.shape[-1] // 2
    angle = jnp.arange(n)[:, None] * 10000.0 ** (-jnp.arange(e) / e)
    c = jnp.cos(angle).astype(x.dtype)
    s = jnp.sin(angle).astype(x.dtype)
    u, v = jnp.split(x, 2, -1)
    return jnp.concatenate([u * c - v * s, u * s + v * c], -1)


@family_of(
    PROGRAMS,
    a=case(4, 128, 256, 8, 2),
    b=16,
    c=case(8, 256, 512, 8, 4, bf16=True),
    d=case(4, 64, 256, 4, 2, train=True),
)
def llama(b: int, n: int, d: int, h: int, kv: int) -> Forward:
    """Rotary positions, keys shared by groups of heads, gated feed-forward."""
    e = d // h
    shapes = [shape(b, n, d), shape(d), shape(d, d), shape(d, 2 * kv * e), shape(d, d)]
    shapes += [shape(d, 2 * d), shape(d, 2 * d), shape(2 * d, d)]

    def f(x, g, wq, wkv, wo, w1, w2, w3):
        y = norm(x, g)
        q = rotate(heads(y @ wq, h))
        k, v = (heads(t, kv) for t in jnp.split(y @ wkv, 2, -1))
        k, v = (jnp.repeat(t, h // kv, 1) for t in (rotate(k), v))
        x = x + join(attend(q, k, v, causal(n))) @ wo
        y = norm(x, g)
        return x + (jax.nn.silu(y @ w1) * (y @ w2)) @ w3

    return f, 1, shapes


@family_of(PROGRAMS, a=case(8, 128, 256, 8), b=32, c=case(4, 512, 384, 6, bf16=True))
def multiquery(b: int, n: int, d: int, h: int) -> Forward:
    """One key and value for all heads."""
    e = d // h
    shapes = [shape(b, n, d), shape(d, d), shape(d, e), shape(d, e), shape(d, d)]

    def f(x, wq, wk, wv, wo):
        s = jnp.einsum("bqhe,bke->bhqk", (x @ wq).reshape(b, n, h, e), x @ wk)
        o = jnp.einsum("bhqk,bke->bqhe", jax.nn.softmax(s, -1), x @ wv)
        return x + o.reshape(b, n, d) @ wo

    return f, 1, shapes


@family_of(PROGRAMS, a=case(32, 128, 256, 8), b=128)
def decode(b: int, n: int, d: int, h: int) -> Forward:
    """One new token against a cache of n keys and values, then the feed-forward."""
    e = d // h
    shapes = [
        shape(b, d),
        shape(b, n, h, e),
        shape(b, n, h, e),
        shape(d, 3 * d),
        shape(d, d),
        shape(d, 4 * d),
    ]
    shapes.append(shape(4 * d, d))

    def f(x, cache_k, cache_v, wqkv, wo, w1, w2):
        q, k, v = (t.reshape(b, h, e) for t in jnp.split(x @ wqkv, 3, -1))
        old = jnp.einsum("bhe,bnhe->bhn", q, cache_k)
        s = jax.nn.softmax(jnp.concatenate([old, (q * k).sum(-1, keepdims=True)], -1), -1)
        o = jnp.einsum("bhn,bnhe->bhe", s[..., :-1], cache_v) + s[..., -1:] * v
        x = x + o.reshape(b, d) @ wo
        return x + jax.nn.gelu(x @ w1) @ w2

    return f, 3, shapes


@family_of(PROGRAMS, a=case(4, 256, 256, 8), b=16, d=case(4, 128, 128, 4, train=True))
def linattn(b: int, n: int, d: int, h: int) -> Forward:
    """Keys times values first, so that no tokens-by-tokens matrix exists."""
    shapes = [shape(b, n, d), shape(d, 3 * d), shape(d, d)]

    def f(x, wqkv, wo):
        q, k, v = (heads(t, h) for t in jnp.split(x @ wqkv, 3, -1))
        q = jax.nn.elu(q) + 1
        k = jax.nn.elu(k) + 1
        o = jnp.einsum("bhne,bhef->bhnf", q, jnp.einsum("bhne,bhnf->bhef", k, v))
        scale = jnp.einsum("bhne,bhe->bhn", q, k.sum(2)) + 1e-3
        return x + join(o / scale[..., None]) @ wo

    return f, 1, shapes


@family_of(PROGRAMS, a=case(4, 256, 256, 8, 64), b=16)
def linformer(b: int, n: int, d: int, h: int, k: int) -> Forward:
    """Keys and values projected along the sequence to k rows."""
    shapes = [shape(b, n, d), shape(d, 3 * d), shape(n, k), shape(n, k), shape(d, d)]

    def f(x, wqkv, pk, pv, wo):
        q, key, v = (heads(t, h) for t in jnp.split(x @ wqkv, 3, -1))
        return (
            x
            + join(
                attend(q, jnp.einsum("bhne,nk->bhke", key, pk), jnp.einsum("bhne,nk->bhke", v, pv))
            )
            @ wo
        )

    return f, 1, shapes


@family_of(PROGRAMS, a=case(4, 256, 32, 256, 8), b=16)
def localattn(b: int, n: int, w: int, d: int, h: int) -> Forward:
    """Blocks of the sequence attend to themselves and the block before."""
    g = n // w
    shapes = [shape(b, n, d), shape(d, 3 * d), shape(d, d)]

    def f(x, wqkv, wo):
        q, k, v = (t.reshape(b, g, w, h, d // h) for t in jnp.split(x @ wqkv, 3, -1))
        k, v = (jnp.concatenate([jnp.roll(t, 1, 1), t], 2) for t in (k, v))
        s = jax.nn.softmax(jnp.einsum("bgqhe,bgkhe->bghqk", q, k), -1)
        return x + jnp.einsum("bghqk,bgkhe->bgqhe", s, v).reshape(b, n, d) @ wo

    return f, 1, shapes


@family_of(PROGRAMS, a=case(4, 128, 256, 4), b=16)
def retention(b: int, n: int, d: int, h: int) -> Forward:
    """Scores decay with distance instead of a softmax; gated output."""
    shapes = [shape(b, n, d), shape(d, 3 * d), shape(d, d), shape(d, d), shape(d // h), shape(h)]

    def f(x, wqkv, wg, wo, gain, rate):
        q, k, v = (heads(t, h) for t in jnp.split(x @ wqkv, 3, -1))
        gap = (jnp.arange(n)[:, None] - jnp.arange(n)[None]).astype(x.dtype)
        decay = jnp.where(gap >= 0, jnp.exp(-jax.nn.softplus(rate)[:, None, None] * gap), 0)
        s = jnp.einsum("bhqe,bhke->bhqk", q, k) * decay
        o = join(norm(jnp.einsum("bhqk,bhke->bhqe", s, v), gain))
        return x + (o * jax.nn.silu(x @ wg)) @ wo

    return f, 1, shapes


@family_of(PROGRAMS, a=case(8, 128, 256), b=32)
def attnfree(b: int, n: int, d: int) -> Forward:
    """Learned pairwise biases weigh the values, feature by feature."""
    shapes = [shape(b, n, d), shape(d, 3 * d), shape(n, n), shape(d, d)]

    def f(x, wqkv, bias, wo):
        q, k, v = jnp.split(x @ wqkv, 3, -1)
        e = jnp.exp(k - k.max(1, keepdims=True))
        w = jnp.exp(bias)
        top = jnp.einsum("qk,bkd->bqd", w, e * v)
        bottom = jnp.einsum("qk,bkd->bqd", w, e)
        return x + (jax.nn.sigmoid(q) * top / bottom) @ wo

    return f, 1, shapes


@family_of(PROGRAMS, a=case(4, 128, 256, 4, 1024), b=16, d=case(4, 64, 192, 3, 1024, train=True))
def bert(b: int, n: int, d: int, h: int, vocabulary: int) -> Forward:
    """Post-normalised block and the scores of a vocabulary at every position."""
    shapes = [
        shape(b, n, d),
        shape(d, d),
        shape(d, d),
        shape(d, d),
        shape(d, d),
        shape(d, 4 * d),
        shape(4 * d, d),
    ]
    shapes += [shape(d), shape(d), shape(d, vocabulary)]

    def f(x, wq, wk, wv, wo, w1, w2, g, c, out):
        q, k, v = (heads(x @ w, h) for w in (wq, wk, wv))
        x = layer_norm(x + join(attend(q, k, v)) @ wo, g, c)
        x = layer_norm(x + jax.nn.gelu(x @ w1) @ w2, g, c)
        return jax.nn.log_softmax(x @ out, -1)

    return f, 1, shapes


@family_of(PROGRAMS, a=case(4, 128, 256, 4), b=16)
def experts(b: int, n: int, d: int, e: int) -> Forward:
    """Tokens dispatched to experts and combined again by dense products."""
    k = n // 4
    shapes = [shape(b, n, d), shape(d, e), shape(d, e * k), shape(e, d, 2 * d), shape(e, 2 * d, d)]

    def f(x, gate, slots, w1, w2):
        p = jax.nn.softmax(x @ gate, -1)
        send = jax.nn.softmax((x @ slots).reshape(b, n, e, k), 1)
        y = jnp.einsum("bnek,bnd->ebkd", send, x)
        y = jnp.einsum("ebkf,efd->ebkd", jax.nn.gelu(jnp.einsum("ebkd,edf->ebkf", y, w1)), w2)
        return x + jnp.einsum("bnek,ebkd->bnd", send * p[..., None], y)

    return f, 1, shapes


@family_of(PROGRAMS, a=case(4, 128, 256, 4), d=case(4, 64, 128, 2, train=True))
def conformer(b: int, n: int, d: int, h: int) -> Forward:
    """Attention, then a gated depthwise convolution along time."""
    shapes = [
        shape(b, n, d),
        shape(d, 3 * d),
        shape(d, d),
        shape(1, d, 2 * d),
        shape(15, 1, d),
        shape(1, d, d),
    ]

    def f(x, wqkv, wo, w1, depth, w2):
        x = x + join(attend(*(heads(t, h) for t in jnp.split(x @ wqkv, 3, -1)))) @ wo
        u, v = jnp.split(conv(x, w1), 2, -1)
        return x + conv(jax.nn.silu(conv(u * jax.nn.sigmoid(v), depth, 1, d)), w2)

    return f, 1, shapes


@family_of(PROGRAMS, a=case(4, 128, 256, 4), d=case(4, 64, 128, 2, train=True))
def modulated(b: int, n: int, d: int, h: int) -> Forward:
    """A block whose scales and gates come from a condition (diffusion transformers)."""
    shapes = [
        shape(b, n, d),
        shape(b, d),
        shape(d, 4 * d),
        shape(d, 3 * d),
        shape(d, d),
        shape(d, 2 * d),
        shape(2 * d, d),
    ]

    def f(x, c, wc, wqkv, wo, w1, w2):
        a, g, s, t = (m[:, None] for m in jnp.split(jax.nn.silu(c) @ wc, 4, -1))
        y = norm(x, 1 + a)
        x = x + g * (join(attend(*(heads(q, h) for q in jnp.split(y @ wqkv, 3, -1)))) @ wo)
        return x + t * (jax.nn.gelu(norm(x, 1 + s) @ w1) @ w2)

    return f, 2, shapes


globals().update(PROGRAMS)
