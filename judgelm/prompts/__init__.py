"""Prompt templates, and how they become the tokens that a judge reads."""
