"""The parts of `run-all`: its budget, and steps in processes of their own."""
