"""What several pipelines need: progress, and what the workspace holds to train on."""
