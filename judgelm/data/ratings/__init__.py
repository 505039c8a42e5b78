"""Ratings of completions by several judges."""
