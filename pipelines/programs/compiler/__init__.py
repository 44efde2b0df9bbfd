"""Labels by XLA: cycle estimates for TPUs, made without one, or measurements on this machine."""
