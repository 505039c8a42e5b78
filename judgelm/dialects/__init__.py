"""Prompts that other programs send to GPT-4 as a judge: recognised, split, and answered as their parsers want it."""
