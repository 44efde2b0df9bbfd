"""Code shared by pipelines: building, evaluations, results, processes, progress and the
workspace.
"""
