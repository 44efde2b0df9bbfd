"""Labels from the XLA compiler: cycle estimates for TPUs, made without one, or measurements on this
machine.
"""
