"""Engines turn requests into completions. They know nothing about judging."""
