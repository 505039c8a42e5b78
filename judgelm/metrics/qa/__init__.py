"""Metrics of short answers: exact match, F1, and agreement with people."""
