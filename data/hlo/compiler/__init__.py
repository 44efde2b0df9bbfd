"""Labels from a compiler: XLA's own estimate for TPUs, without a TPU, or run times on this machine's CPU."""
