"""Labels from a compiler: XLA's for TPUs without a TPU (its own estimate), or this machine's CPU (measured).

Everything of JAX happens in a process of its own (`service`), so that the rest of xlarank needs neither jax nor
libtpu, and a compiler that crashes or hangs costs one configuration.
"""
