"""Judges as reward functions for TRL (`judgelm.rewards.trl`) and verl (`judgelm.rewards.verl`)."""
