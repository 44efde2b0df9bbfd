"""Measurements run by hand; each prints what it found against a floor or a peer."""
