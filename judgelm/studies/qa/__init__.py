"""Short answers by exact match, F1, judges and people (QA-Judge)."""
