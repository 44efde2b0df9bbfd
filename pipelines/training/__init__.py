"""Training sets, studies, fitting of rankers, and what they cost."""
