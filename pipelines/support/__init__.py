"""Shared by several pipelines: building, fitting, studies, clusters, processes, the workspace and its lock."""
