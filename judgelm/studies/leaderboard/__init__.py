"""Leaderboards: many models rated by Bradley-Terry from judgments of pairs."""
