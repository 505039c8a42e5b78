"""Calibration of a judge's probabilities."""
