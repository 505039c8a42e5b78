"""A synthetic judging world: questions, answer generators of differing skill, and a programmatic teacher."""
