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
    """The same product seven times, in a loop's body."""
    import jax
    import jax.numpy as jnp

    def function(x, weight):
        return jax.lax.fori_loop(0, 7, lambda _, h: jnp.tanh(h @ weight), x)

    return function, (jax.ShapeDtypeStruct((256, 256), jnp.float32),) * 2


def softmax():
    """Two reductions and a division."""
    import jax
    import jax.numpy as jnp

    return jax.nn.softmax, (jax.ShapeDtypeStruct((2048, 1024), jnp.float32),)


def nothing():
    """Not a program."""
    return 3
