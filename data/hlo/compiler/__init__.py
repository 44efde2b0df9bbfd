"""Labels from the XLA compiler: cycle estimates for TPUs, without a TPU, or run times on this machine's CPU."""
