"""Parsers of replies: scores, labels, levels or answers, or why there are none."""
