"""The model (`model.Model`), its losses and boosters, and validation."""
