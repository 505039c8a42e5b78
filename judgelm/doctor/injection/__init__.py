"""Prompt injection: attacks on a judge, and how often they succeed."""
