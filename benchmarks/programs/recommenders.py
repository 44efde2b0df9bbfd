"""Recommenders and matching: interactions among fields, towers, factorisations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.nn import relu

from benchmarks.programs.parts import (
    Forward,
    Programs,
    attend,
    case,
    conv,
    family_of,
    heads,
    join,
    shape,
)

PROGRAMS: Programs = {}


@family_of(PROGRAMS, a=case(256, 24, 64, 256), b=1024, c=case(512, 32, 32, 512, bf16=True))
def factormachine(b: int, fields: int, d: int, hidden: int) -> Forward:
    """Second-order interactions, and a dense net of all fields, added."""
    shapes = [shape(b, fields, d), shape(fields, d, d), shape(fields * d, hidden), shape(hidden, d)]

    def f(x, w, w1, w2):
        y = jnp.einsum("bfd,fde->bfe", x, w)
        second = (y.sum(1) ** 2 - (y**2).sum(1)) / 2
        return second + relu(x.reshape(b, fields * d) @ w1) @ w2

    return f, 1, shapes


@family_of(PROGRAMS, a=case(256, 24, 32, 64, 3), c=case(512, 16, 64, 128, 2, train=True))
def crossing(b: int, fields: int, d: int, r: int, layers: int) -> Forward:
    """Low-rank cross layers: the input times a projection of the state, added."""
    n = fields * d
    shapes = [shape(b, fields, d), *[shape(n, r), shape(r, n)] * layers]

    def f(x, *w):
        x = start = x.reshape(b, n)
        for i in range(0, len(w), 2):
            x = start * ((x @ w[i]) @ w[i + 1]) + x
        return x.reshape(b, fields, d)

    return f, 1, shapes


@family_of(PROGRAMS, a=case(128, 32, 64, 4), b=512, d=case(128, 16, 64, 2, train=True))
def fieldattn(b: int, fields: int, d: int, h: int) -> Forward:
    """Attention among the fields of one example."""
    shapes = [shape(b, fields, d), shape(d, 3 * d), shape(d, d), shape(fields * d, 64)]

    def f(x, wqkv, wr, out):
        o = join(attend(*(heads(t, h) for t in jnp.split(x @ wqkv, 3, -1))))
        return relu(o + x @ wr).reshape(b, fields * d) @ out

    return f, 1, shapes


@family_of(PROGRAMS, a=case(128, 32, 64))
def bilinearfields(b: int, fields: int, d: int) -> Forward:
    """Every pair of fields through its own product, gated by the fields' means."""
    shapes = [
        shape(b, fields, d),
        shape(fields, fields // 2),
        shape(fields // 2, fields),
        shape(d, d),
        shape(fields * fields, 128),
    ]

    def f(x, w1, w2, w, out):
        gate = relu(relu(x.mean(-1) @ w1) @ w2)
        y = x * gate[..., None]
        return jnp.einsum("bfe,bge->bfg", y @ w, y).reshape(b, fields * fields) @ out

    return f, 1, shapes


@family_of(PROGRAMS, a=case(128, 16, 64, 128), b=512, d=case(128, 8, 64, 64, train=True))
def towers(b: int, n: int, d: int, e: int) -> Forward:
    """Two towers, every user against every item of the batch."""
    shapes = [
        shape(b, n, d),
        shape(b, n, d),
        shape(d, e),
        shape(n * e, e),
        shape(d, e),
        shape(n * e, e),
    ]

    def f(u, v, w1, w2, w3, w4):
        p = relu(u @ w1).reshape(b, n * e) @ w2
        q = relu(v @ w3).reshape(b, n * e) @ w4
        return jax.nn.log_softmax(p @ q.T, -1)

    return f, 2, shapes


@family_of(PROGRAMS, a=case(32, 64, 32, 256), b=128)
def imagetext(b: int, hw: int, n: int, d: int) -> Forward:
    """Patches of an image and words of a text, means compared over the batch."""
    p = 8
    shapes = [
        shape(b, hw, hw, 3),
        shape(b, n, d),
        shape(p, p, 3, d),
        shape(d, d),
        shape(5, d, d),
        shape(d, d),
    ]

    def f(image, text, w1, w2, w3, w4):
        i = relu(conv(image, w1, p, pad="VALID")).reshape(b, (hw // p) ** 2, d)
        i = jnp.tanh(i @ w2).mean(1)
        t = jnp.tanh(relu(conv(text, w3)) @ w4).mean(1)
        return jax.nn.log_softmax(i @ t.T * 10, -1)

    return f, 2, shapes


@family_of(PROGRAMS, a=case(256, 256, 64, 8))
def factorisation(m: int, n: int, k: int, groups: int) -> Forward:
    """Residual of a dense matrix and two factors per group, and its products with both factors."""
    shapes = [shape(groups, m, n), shape(groups, m, k), shape(groups, k, n)]

    def f(x, u, v):
        r = x - jnp.einsum("gmk,gkn->gmn", u, v)
        return jnp.einsum("gmn,gkn->gmk", r, v).sum(1) + jnp.einsum("gmn,gmk->gkn", r, u).sum(2)

    return f, 1, shapes


@family_of(PROGRAMS, a=case(64, 32, 128, 2048))
def session(b: int, n: int, d: int, items: int) -> Forward:
    """The last clicks weighed by a small net, scores of all items."""
    shapes = [shape(b, n, d), shape(d, d), shape(d, d), shape(d), shape(2 * d, d), shape(items, d)]

    def f(x, w1, w2, q, w3, table):
        a = jnp.einsum("bnd,d->bn", jax.nn.sigmoid((x @ w1) + (x[:, -1:] @ w2)), q)
        s = jnp.einsum("bn,bnd->bd", jax.nn.softmax(a, -1), x)
        return jnp.einsum("bd,id->bi", jnp.concatenate([s, x[:, -1]], -1) @ w3, table)

    return f, 1, shapes


globals().update(PROGRAMS)
