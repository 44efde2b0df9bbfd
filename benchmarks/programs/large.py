"""Published architectures at their depth: training steps with 60 configurable nodes or more.

Width is real, half or a quarter, batch and resolution are small, so that one configuration compiles in a minute.
``l`` computes in float32, ``m`` in bfloat16. Not in `benchmarks.programs.PROGRAMS`: a labelled configuration costs
tens of seconds. Batch norm is a learned scale and shift. Networks with residual connections around it are left out
on purpose: they are held out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.nn import relu

from benchmarks.programs.parts import (
    Forward,
    Program,
    attend,
    case,
    causal,
    conv,
    family,
    heads,
    join,
    layer_norm,
    max_pool,
    mean_pool,
    norm,
    shape,
)


class _Weights:
    """Shapes in the order in which the forward pass takes them."""

    def __init__(self, *inputs: Any) -> None:
        self.shapes = list(inputs)

    def of(self, *dims: int) -> int:
        self.shapes.append(shape(*dims))
        return len(self.shapes) - 1


def _layers(w: _Weights, layers: int, d: int, wide: int, cross: bool = False) -> list[list[int]]:
    """Norm and four products of attention, again where it also looks at an encoder, norm and two products."""
    attention = [(d,), (d, d), (d, d), (d, d), (d, d)]
    each = attention * (1 + cross) + [(d,), (d, wide), (wide, d)]
    return [[w.of(*dims) for dims in each] for _ in range(layers)]


def _attention(x: Any, y: Any, g: Any, q: Any, k: Any, v: Any, o: Any, h: int, mask: Any = None) -> Any:
    n = norm(x, g)
    y = n if y is None else y
    return x + join(attend(heads(n @ q, h), heads(y @ k, h), heads(y @ v, h), mask)) @ o


def _transformer(x: Any, args: Any, layers: list[list[int]], h: int, mask: Any = None, seen: Any = None) -> Any:
    for layer in layers:
        weights = [args[at] for at in layer]
        x = _attention(x, None, *weights[:5], h, mask)
        if seen is not None:
            x = _attention(x, seen, *weights[5:10], h)
        g, up, down = weights[-3:]
        x = x + jax.nn.gelu(norm(x, g) @ up) @ down
    return x


def bert(b: int, n: int, d: int, h: int, layers: int) -> Forward:
    """An encoder of text and a head that names the words: tokens come embedded."""
    w = _Weights(shape(b, n, d))
    body, head = _layers(w, layers, d, 4 * d), w.of(d, 4 * d)
    return (lambda *args: _transformer(args[0], args, body, h) @ args[head]), 1, w.shapes


def gpt2(b: int, n: int, d: int, h: int, layers: int) -> Forward:
    """The same, each word looking at those before it."""
    w = _Weights(shape(b, n, d))
    body, head = _layers(w, layers, d, 4 * d), w.of(d, 4 * d)
    return (lambda *args: _transformer(args[0], args, body, h, causal(n)) @ args[head]), 1, w.shapes


def t5(b: int, n: int, d: int, h: int, layers: int) -> Forward:
    """Encoder and decoder."""
    w = _Weights(shape(b, n, d), shape(b, n // 2, d))
    encoder, decoder, head = _layers(w, layers, d, 4 * d), _layers(w, layers, d, 4 * d, True), w.of(d, 4 * d)

    def f(*args):
        seen = _transformer(args[0], args, encoder, h)
        return _transformer(args[1], args, decoder, h, causal(n // 2), seen) @ args[head]

    return f, 2, w.shapes


def vit(b: int, hw: int, patch: int, d: int, h: int, layers: int) -> Forward:
    """Patches by a strided convolution, an encoder, a class."""
    w = _Weights(shape(b, hw, hw, 3))
    stem, body, head = w.of(patch, patch, 3, d), _layers(w, layers, d, 4 * d), w.of(d, 1000)

    def f(*args):
        x = conv(args[0], args[stem], patch).reshape(b, -1, d)
        return _transformer(x, args, body, h).mean(1) @ args[head]

    return f, 1, w.shapes


def mixer(b: int, hw: int, patch: int, d: int, layers: int) -> Forward:
    """Products over patches and over features in turn."""
    n = (hw // patch) ** 2
    w = _Weights(shape(b, hw, hw, 3))
    stem, head = w.of(patch, patch, 3, d), w.of(d, 1000)
    each = ((d,), (n, 2 * n), (2 * n, n), (d,), (d, 4 * d), (4 * d, d))
    body = [[w.of(*dims) for dims in each] for _ in range(layers)]

    def f(*args):
        x = conv(args[0], args[stem], patch).reshape(b, n, d)
        for layer in body:
            g, up, down, g2, up2, down2 = (args[at] for at in layer)
            x = x + (jax.nn.gelu(norm(x, g).swapaxes(1, 2) @ up) @ down).swapaxes(1, 2)
            x = x + jax.nn.gelu(norm(x, g2) @ up2) @ down2
        return x.mean(1) @ args[head]

    return f, 1, w.shapes


def vgg(b: int, hw: int, c: int, fc: int) -> Forward:
    """Thirteen 3x3 convolutions in five stages, three dense layers."""
    w = _Weights(shape(b, hw, hw, 3))
    stages, into = [], 3
    for wide, depth in ((c, 2), (2 * c, 2), (4 * c, 3), (8 * c, 3), (8 * c, 3)):
        stages.append([w.of(3, 3, into if at == 0 else wide, wide) for at in range(depth)])
        into = wide
    dense = [w.of((hw // 32) ** 2 * into, fc), w.of(fc, fc), w.of(fc, 1000)]

    def f(*args):
        x = args[0]
        for stage in stages:
            for at in stage:
                x = relu(conv(x, args[at]))
            x = max_pool(x)
        x = x.reshape(b, -1)
        return relu(relu(x @ args[dense[0]]) @ args[dense[1]]) @ args[dense[2]]

    return f, 1, w.shapes


def _unit(w: _Weights, kh: int, kw: int, into: int, wide: int) -> list[int]:
    return [w.of(kh, kw, into, wide), w.of(wide), w.of(wide)]


def _activated(x: Any, args: Any, unit: list[int], stride: int = 1, groups: int = 1) -> Any:
    kernel, gain, bias = (args[at] for at in unit)
    return relu(conv(x, kernel, stride, groups) * gain + bias)


def mobilenet(b: int, hw: int, c: int) -> Forward:
    """Thirteen pairs of depthwise 3x3 and pointwise convolutions."""
    w = _Weights(shape(b, hw, hw, 3))
    stem, into, body = _unit(w, 3, 3, 3, c), c, []
    for wide, stride in ((2, 1), (4, 2), (4, 1), (8, 2), (8, 1), (16, 2), *[(16, 1)] * 5, (32, 2), (32, 1)):
        body.append((into, stride, _unit(w, 3, 3, 1, into), _unit(w, 1, 1, into, wide * c)))
        into = wide * c
    head = w.of(into, 1000)

    def f(*args):
        x = _activated(args[0], args, stem, 2)
        for groups, stride, depthwise, pointwise in body:
            x = _activated(_activated(x, args, depthwise, stride, groups), args, pointwise)
        return x.mean((1, 2)) @ args[head]

    return f, 1, w.shapes


def densenet(b: int, hw: int, growth: int, blocks: tuple[int, ...]) -> Forward:
    """Blocks of 1x1 and 3x3 whose outputs are all concatenated, halved between blocks."""
    w = _Weights(shape(b, hw, hw, 3))
    into = 2 * growth
    stem, body = _unit(w, 7, 7, 3, into), []
    for number, depth in enumerate(blocks):
        layers = []
        for _ in range(depth):
            layers.append((_unit(w, 1, 1, into, 4 * growth), _unit(w, 3, 3, 4 * growth, growth)))
            into += growth
        last = number == len(blocks) - 1
        body.append((layers, None if last else _unit(w, 1, 1, into, into // 2)))
        into = into if last else into // 2
    head = w.of(into, 1000)

    def f(*args):
        x = _activated(args[0], args, stem, 2)
        for layers, between in body:
            for narrow, wide in layers:
                x = jnp.concatenate([x, _activated(_activated(x, args, narrow), args, wide)], -1)
            if between is not None:
                x = mean_pool(_activated(x, args, between), 2)
        return x.mean((1, 2)) @ args[head]

    return f, 1, w.shapes


def convnext(b: int, hw: int, c: int, blocks: tuple[int, ...]) -> Forward:
    """Depthwise 7x7, norm, two products; strided convolutions between stages."""
    w = _Weights(shape(b, hw, hw, 3))
    stem, body = w.of(4, 4, 3, c), []
    for number, depth in enumerate(blocks):
        d = c * 2**number
        down = None if number == 0 else w.of(2, 2, d // 2, d)
        each = ((7, 7, 1, d), (d,), (d,), (d, 4 * d), (4 * d, d))
        body.append((d, down, [[w.of(*dims) for dims in each] for _ in range(depth)]))
    head = w.of(c * 2 ** (len(blocks) - 1), 1000)

    def f(*args):
        x = conv(args[0], args[stem], 4)
        for d, down, layers in body:
            x = x if down is None else conv(x, args[down], 2)
            for layer in layers:
                k, g, bias, up, back = (args[at] for at in layer)
                x = x + jax.nn.gelu(layer_norm(conv(x, k, 1, d), g, bias) @ up) @ back
        return x.mean((1, 2)) @ args[head]

    return f, 1, w.shapes


def inception(b: int, hw: int, c: int) -> Forward:
    """Inception-v3: branches of 1x1, 5x5, factorised 7x7 and pooling, in units of ``c`` = 32 channels or fewer."""
    w = _Weights(shape(b, hw, hw, 3))
    stem = [(_unit(w, 3, 3, 3, c), 2), (_unit(w, 3, 3, c, 2 * c), 1), (_unit(w, 3, 3, 2 * c, 6 * c), 2)]
    into, body = 6 * c, []
    row, column = (1, 7), (7, 1)
    small = [[((1, 1), 2)], [((1, 1), 2), ((5, 5), 2)], [((1, 1), 2), ((3, 3), 3), ((3, 3), 3)], [((1, 1), 2)]]
    long = [[((1, 1), 6)], [((1, 1), 4), (row, 4), (column, 6)],
            [((1, 1), 4), (column, 4), (row, 4), (column, 4), (row, 6)], [((1, 1), 6)]]  # fmt: skip
    deep = [[((1, 1), 10)], [((1, 1), 12), ((1, 3), 12), ((3, 1), 12)],
            [((1, 1), 14), ((3, 3), 12), ((1, 3), 12), ((3, 1), 12)], [((1, 1), 6)]]  # fmt: skip
    for branches in (*[small] * 3, *[long] * 4, *[deep] * 2):
        made, wide = [], 0
        for branch in branches:
            now, units = into, []
            for kernel, channels in branch:
                units.append(_unit(w, *kernel, now, channels * c))
                now = channels * c
            made.append(units)
            wide += now
        body.append(made)
        into = wide
    head = w.of(into, 1000)

    def f(*args):
        x = args[0]
        for unit, stride in stem:
            x = _activated(x, args, unit, stride)
        for number, branches in enumerate(body):
            if number in (3, 7):
                x = max_pool(x)
            outputs = []
            for units in branches:
                y = x
                for unit in units:
                    y = _activated(y, args, unit)
                outputs.append(y)
            x = jnp.concatenate(outputs, -1)
        return x.mean((1, 2)) @ args[head]

    return f, 1, w.shapes


def wavenet(b: int, n: int, c: int, layers: int) -> Forward:
    """Dilated convolutions with gates, residuals and skips."""
    w = _Weights(shape(b, n, c))
    body = [[w.of(2, c, 2 * c), w.of(1, c, c), w.of(1, c, 2 * c)] for _ in range(layers)]
    last, head = w.of(1, 2 * c, 2 * c), w.of(1, 2 * c, 256)

    def f(*args):
        x, skip = args[0], 0.0
        for number, layer in enumerate(body):
            kernel, back, out = (args[at] for at in layer)
            u, v = jnp.split(conv(x, kernel, 1, 1, 2 ** (number % 8)), 2, -1)
            y = jnp.tanh(u) * jax.nn.sigmoid(v)
            skip = skip + conv(y, out)
            x = x + conv(y, back)
        return conv(relu(conv(relu(skip), args[last])), args[head])

    return f, 1, w.shapes


def _both(name: str, build: Callable[..., Forward], *sizes: Any) -> dict[str, Callable[[], Program]]:
    return family(
        name, build, l=case(*sizes, train=True), m=case(*sizes, train=True, bf16=True)
    )  # fmt: skip


PROGRAMS = {
    **_both("mixer", mixer, 4, 64, 8, 256, 8),
    **_both("bert", bert, 4, 128, 256, 4, 6),
    **_both("vit", vit, 4, 64, 8, 384, 6, 12),
    **_both("gpt2", gpt2, 2, 128, 192, 6, 12),
    **_both("t5", t5, 4, 64, 256, 4, 6),
    **_both("wavenet", wavenet, 2, 512, 64, 20),
    **_both("vgg", vgg, 4, 64, 32, 512),
    **_both("mobilenet", mobilenet, 4, 64, 32),
    **_both("convnext", convnext, 2, 64, 48, (3, 3, 9, 3)),
    **_both("inception", inception, 2, 64, 16),
    **_both("densenet", densenet, 2, 64, 32, (6, 12, 24, 16)),
}
globals().update(PROGRAMS)
