"""The command line: parse, call one pipeline, show the result. One file a group of commands; no logic."""
