"""Parsers for scores, labels, levels, and answers in replies. On failure, they return the reason."""
