"""Prompt templates and what turns them into the tokens that a judge reads."""
