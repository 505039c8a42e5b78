"""A controlled laboratory: JudgeLM's Tables 1, 4, 5 and 6 in small, on a world whose truth is known."""
