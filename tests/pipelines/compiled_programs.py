"""Small JAX programs for tests that compile; imported by the compiler's process alone."""

import jax
import jax.numpy as jnp


def _arrays(*shapes):
    return tuple(jax.ShapeDtypeStruct(shape, "float32") for shape in shapes)


def program(function, *shapes):
    """Return a program: a function without arguments that returns one to compile and its arrays."""
    return lambda: (function, _arrays(*shapes))


_PRODUCT = ((256, 256), (256, 512), (512, 128))
#: Two products: the hidden layout matters, and all compile within seconds.
products = program(lambda x, first, second: jax.nn.gelu(x @ first) @ second, *_PRODUCT)
sums = program(lambda x, y: x + y, (2048, 2048), (2048, 2048))
unfit = program(lambda x: x, (3,), (3,))  # one argument too many
#: A product seven times in a loop, and all results: its counter says where each is put.
loop = program(
    lambda x, w: jax.lax.scan(lambda h, _: (jnp.tanh(h @ w),) * 2, x, None, 7), *[(256, 256)] * 2
)


def texts():
    """Return convolutions over a text as in PyTorch, whose inputs need other layouts."""

    def function(weights, x):
        def convolve(w):
            return jax.lax.conv_general_dilated(
                x, w, (1,), "SAME", dimension_numbers=("NCW", "OIW", "NCW")
            ).max(2)

        return {"found": convolve(weights["narrow"]) + convolve(weights["wide"])}

    narrow, wide, x = _arrays((64, 96, 3), (64, 96, 4), (16, 96, 64))
    return function, ({"narrow": narrow, "wide": wide}, x)


def picked():
    """Return a step that picks single elements: the compiler has no code for it."""
    arrays = (*_arrays((128, 1000)), jax.ShapeDtypeStruct((128,), "int32"))
    return (lambda x, labels: jax.nn.log_softmax(x)[jnp.arange(128), labels].sum()), arrays


def mixing():
    """Return a step whose output state is laid out otherwise than the input state."""

    def step(state, mix):
        h = jnp.einsum("bkd,de->bke", state["h"], state["w"])
        h = jnp.einsum("bke,kl->lbe", jax.nn.relu(h), mix).transpose(1, 0, 2)
        return {"h": h, "w": state["w"]}, h.sum()

    h, w, mix = _arrays((32, 12, 128), (128, 128), (12, 12))
    return step, ({"h": h, "w": w}, mix)


def shapeless():
    return (lambda text: text), ("text",)


def placed():
    """Return a function with the shardings of pasted advice, which name a device."""
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.jit(jnp.tanh, in_shardings=sharding), _arrays((8,))
