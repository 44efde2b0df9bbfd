"""Training sets, studies and fitting of rankers."""
