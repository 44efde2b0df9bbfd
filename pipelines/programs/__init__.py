"""Own programs: where they come from, labels measured on this machine, what to compile next, lines for JAX."""
