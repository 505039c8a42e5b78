"""Labelled pairs that the model in training judges at every evaluation."""
