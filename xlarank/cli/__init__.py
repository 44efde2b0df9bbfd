"""Command line: parse arguments, call one pipeline, show the result. One module per group of
commands.
"""

import os

# The matrix products of columns are small: threads of OpenBLAS only spin, and double the processor
# time of an NLP graph. The variable must be set before numpy loads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
