"""One command per file: plain functions with typed arguments that a notebook can call.

Nothing here parses arguments or prints; long work reports to `support.progress`.
"""
