"""What several verbs need: progress, and what the workspace holds to learn from."""
