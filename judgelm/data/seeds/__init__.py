"""Seed questions: read, deduplicated and sampled."""
