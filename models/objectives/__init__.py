"""What rankers learn: labels, losses and their weights."""
