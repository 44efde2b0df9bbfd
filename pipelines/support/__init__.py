"""What several pipelines share: building, fitting, studies, clusters, processes, the workspace and its lock."""
