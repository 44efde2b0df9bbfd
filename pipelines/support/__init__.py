"""Helpers shared by several pipelines: building, results, clusters, processes, the workspace and its lock."""
