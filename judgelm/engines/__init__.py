"""Engines turn requests into completions."""
