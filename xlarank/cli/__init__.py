"""Command line: parse arguments, call one pipeline, show the result; a module per group."""

import os

# The matrix products of columns are small: threads of OpenBLAS only spin, and double the processor
# time of an NLP graph. The variable must be set before numpy loads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
