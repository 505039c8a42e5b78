"""Prompt templates, and their conversion to tokens."""
