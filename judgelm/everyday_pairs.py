"""The everyday pairs that come with judgelm: 60 questions with two answers, a label and the reason for it."""

from pathlib import Path

EVERYDAY_PAIRS = Path(__file__).with_name("everyday_pairs.jsonl")
"""Their file, written for this project; in the repository `examples/pairs.jsonl` is a link to it."""
