"""Judgments that others published, read so that they can stand beside one's own."""
