"""Parsers of replies; each returns scores, a label, a level or an answer, or why there is none."""
