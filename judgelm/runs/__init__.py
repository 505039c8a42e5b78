"""Runs over samples: the runner, batch runs and their files, resuming, statistics, costs, cascades, and panels."""
