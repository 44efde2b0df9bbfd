"""Charts, graph pictures and report pages."""
