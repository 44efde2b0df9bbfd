"""Small JAX programs for tests that really compile; imported by the compiler's process, never by pytest."""


def products():
    """Two products: the hidden layout matters, and all compile within seconds."""
    import jax
    import jax.numpy as jnp

    def function(x, first, second):
        return jax.nn.gelu(x @ first) @ second

    return function, tuple(
        jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((256, 256), (256, 512), (512, 128))
    )


def loop():
    """The same product seven times, in a loop's body, and all results: its counter says where each is put."""
    import jax
    import jax.numpy as jnp

    def function(x, weight):
        return jax.lax.scan(lambda h, _: (jnp.tanh(h @ weight),) * 2, x, None, length=7)

    return function, (jax.ShapeDtypeStruct((256, 256), jnp.float32),) * 2


def softmax():
    """Two reductions and a division."""
    import jax
    import jax.numpy as jnp

    return jax.nn.softmax, (jax.ShapeDtypeStruct((2048, 1024), jnp.float32),)


def texts():
    """Convolutions over a text as PyTorch has them: the default layouts of its inputs are not what they need."""
    import jax
    import jax.numpy as jnp

    def function(weights, x):
        def convolve(w):
            numbers = ("NCW", "OIW", "NCW")
            return jax.lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=numbers).max(2)

        return {"found": convolve(weights["narrow"]) + convolve(weights["wide"])}

    weights = {name: jax.ShapeDtypeStruct((64, 96, k), jnp.float32) for name, k in (("narrow", 3), ("wide", 4))}
    return function, (weights, jax.ShapeDtypeStruct((16, 96, 64), jnp.float32))


def shapeless():
    """An argument that is no array."""
    return (lambda text: text), ("text",)


def unfit():
    """One argument too many."""
    import jax.numpy as jnp

    return (lambda x: x), (jnp.zeros(3), jnp.zeros(3))


def nothing():
    """Not a program."""
    return 3
