"""Numerical programs made of products: tensor networks, kernels, filters, factorised operators."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from benchmarks.programs.parts import Forward, Programs, case, family_of, shape

PROGRAMS: Programs = {}


@family_of(PROGRAMS, a=case(4, 32, 64, 128, 32), b=16, c=case(8, 64, 64, 64, 48, bf16=True))
def tucker(b: int, i: int, j: int, k: int, r: int) -> Forward:
    """A core tensor and three factors, against data along each side."""
    shapes = [shape(b, i, j, k), shape(i, r), shape(j, r), shape(k, r), shape(r, r, r)]

    def f(x, u, v, w, core):
        small = jnp.einsum("bijk,ir->brjk", x, u)
        small = jnp.einsum("brjk,js->brsk", small, v)
        small = jnp.einsum("brsk,kt->brst", small, w) * core
        back = jnp.einsum("brst,kt->brsk", small, w)
        return jnp.einsum("brsk,js->brjk", back, v)

    return f, 1, shapes


@family_of(PROGRAMS, a=case(32, 8, 16, 32), b=128, d=case(32, 4, 16, 32, train=True))
def matrixproducts(b: int, sites: int, d: int, bond: int) -> Forward:
    """A chain of site tensors contracted pairwise with the data."""
    shapes = [shape(sites, b, d), shape(sites, d, bond, bond)]

    def f(x, t):
        m = jnp.einsum("sbd,sdij->sbij", x, t)
        while m.shape[0] > 1:
            m = jnp.tanh(jnp.einsum("sbij,sbjk->sbik", m[0::2], m[1::2]))
        return m[0]

    return f, 1, shapes


@family_of(PROGRAMS, a=case(4, 32, 64, 16), b=16, d=case(4, 24, 32, 8, train=True))
def operator(b: int, hw: int, c: int, modes: int) -> Forward:
    """A Fourier neural operator with the transform as products with cosine matrices."""
    shapes = [shape(b, hw, hw, c), shape(modes, hw), shape(modes, modes, c, c), shape(c, c)]

    def f(x, basis, w, skip):
        s = jnp.einsum("mh,bhwc->bmwc", basis, x)
        s = jnp.einsum("nw,bmwc->bmnc", basis, s)
        s = jnp.einsum("bmnc,mncd->bmnd", s, w)
        s = jnp.einsum("mh,bmnd->bhnd", basis, s)
        return jax.nn.gelu(jnp.einsum("nw,bhnd->bhwd", basis, s) + x @ skip)

    return f, 1, shapes


@family_of(PROGRAMS, a=case(32, 64, 16, 2), b=128)
def filters(b: int, d: int, m: int, steps: int) -> Forward:
    """Covariances pushed through a linear system for a few steps."""
    shapes = [shape(b, d, d), shape(b, d), shape(d, d), shape(m, d), shape(d, m)]

    def f(p, x, a, h, gain):
        for _ in range(steps):
            p = jnp.einsum("ij,bjk,lk->bil", a, p, a)
            left = jnp.eye(d, dtype=p.dtype) - gain @ h
            p = jnp.einsum("ij,bjk->bik", left, p)
            x = x @ a.T
        return p, x

    return f, 2, shapes


@family_of(PROGRAMS, a=case(8, 256, 128, 64))
def kernelmachine(b: int, n: int, m: int, d: int) -> Forward:
    """Gaussian kernels between two point sets, applied to values."""
    shapes = [shape(b, n, d), shape(b, m, d), shape(b, m, 64)]

    def f(x, y, v):
        distance = (
            (x**2).sum(-1)[:, :, None]
            - 2 * jnp.einsum("bnd,bmd->bnm", x, y)
            + (y**2).sum(-1)[:, None]
        )
        k = jnp.exp(-distance)
        return jnp.einsum("bnm,bmv->bnv", k, v), jnp.einsum("bnm,bnd->bmd", k, x)

    return f, 3, shapes


@family_of(PROGRAMS, a=case(8, 128, 256, 2))
def orthogonal(b: int, n: int, m: int, steps: int) -> Forward:
    """Newton-Schulz iterations towards the nearest orthogonal matrices."""
    shapes = [shape(b, n, m)]

    def f(x):
        for _ in range(steps):
            g = jnp.einsum("bnm,bkm->bnk", x, x)
            x = 1.5 * x - 0.5 * jnp.einsum("bnk,bkm->bnm", g, x)
        return x

    return f, 1, shapes


@family_of(PROGRAMS, a=case(16, 256, 64, 32), b=64)
def clustering(b: int, n: int, d: int, k: int) -> Forward:
    """Two rounds of soft k-means in every set."""
    shapes = [shape(b, n, d), shape(b, k, d)]

    def f(x, centre):
        for _ in range(2):
            score = 2 * jnp.einsum("bnd,bkd->bnk", x, centre) - (centre**2).sum(-1)[:, None]
            p = jax.nn.softmax(score, -1)
            centre = jnp.einsum("bnk,bnd->bkd", p, x) / (p.sum(1)[..., None] + 1e-3)
        return centre, p

    return f, 2, shapes


@family_of(PROGRAMS, a=case(64, 128, 32), b=128)
def triangles(n: int, c: int, k: int) -> Forward:
    """Pairs updated through third points: outgoing and incoming products, gates."""
    shapes = [shape(n, n, c), shape(c, 4 * k), shape(k, c), shape(c, c)]

    def f(z, w, out, gate):
        a, b, d, e = jnp.split(z @ w, 4, -1)
        y = jnp.einsum("ikc,jkc->ijc", a, jax.nn.sigmoid(b)) + jnp.einsum(
            "kic,kjc->ijc", d, jax.nn.sigmoid(e)
        )
        return z + (y @ out) * jax.nn.sigmoid(z @ gate)

    return f, 1, shapes


@family_of(PROGRAMS, a=case(64, 64, 64, 16), b=256)
def outermean(s: int, n: int, c: int, k: int) -> Forward:
    """Products of every pair of positions averaged over sequences."""
    shapes = [shape(s, n, c), shape(c, k), shape(c, k), shape(k * k, c)]

    def f(x, w1, w2, out):
        o = jnp.einsum("sic,sjd->ijcd", x @ w1, x @ w2).reshape(n, n, k * k)
        return o @ out

    return f, 1, shapes


@family_of(PROGRAMS, a=case(128, 128, 256, 8), b=512, c=case(256, 192, 128, 4, bf16=True))
def boltzmann(b: int, v: int, h: int, groups: int) -> Forward:
    """One step of contrastive divergence for grouped hidden units."""
    shapes = [shape(b, groups, v), shape(groups, v, h)]

    def f(x, w):
        first = jax.nn.sigmoid(jnp.einsum("bgv,gvh->bgh", x, w))
        again = jax.nn.sigmoid(jnp.einsum("bgh,gvh->bgv", first, w))
        second = jax.nn.sigmoid(jnp.einsum("bgv,gvh->bgh", again, w))
        return jnp.einsum("bgv,bgh->gvh", x, first) - jnp.einsum("bgv,bgh->gvh", again, second)

    return f, 1, shapes


@family_of(PROGRAMS, a=case(8, 64, 64, 8), b=32, d=case(8, 32, 64, 4, train=True))
def relational(b: int, n: int, d: int, r: int) -> Forward:
    """Subjects, relations and objects: every pair scored under every relation."""
    shapes = [shape(b, n, d), shape(r, d, d), shape(d, d)]

    def f(x, relation, w):
        s = jnp.einsum("bnd,rde->brne", x, relation)
        s = jax.nn.softmax(jnp.einsum("brne,bme->brnm", s, jnp.tanh(x @ w)), -1)
        return jnp.einsum("brnm,bmd->bnrd", s, x)

    return f, 1, shapes


globals().update(PROGRAMS)
