"""Choosing which configurations to try next from what those tried so far cost."""
