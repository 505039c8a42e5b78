"""Judges on the same labelled pairs."""
