"""Command line: parse arguments, call one pipeline, show the result. One module per group of
commands.
"""
