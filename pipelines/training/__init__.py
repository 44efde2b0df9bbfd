"""Training sets, studies, fitting of rankers, and estimates of time and memory."""
