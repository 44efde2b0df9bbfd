"""Code shared by pipelines: building, evaluations, results, processes, progress, the workspace."""
