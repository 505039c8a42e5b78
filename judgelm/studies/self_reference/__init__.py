"""Judging against answering (Self-Reference)."""
