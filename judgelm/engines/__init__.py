"""Engines turn requests into completions and know nothing of judging."""
