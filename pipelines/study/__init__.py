"""What belongs to an Optuna study: its storage, sampler, picture, and sharing it between processes."""
