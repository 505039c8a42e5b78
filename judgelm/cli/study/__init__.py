"""`judgelm study NAME`: analyses from the papers, applied to your judgments."""
