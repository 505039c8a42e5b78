"""Synthetic judging data: questions, answer generators of differing skill, and a programmatic teacher."""
