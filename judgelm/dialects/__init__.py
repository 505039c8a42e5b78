"""Recognises and splits the judge prompts that other programs send to GPT-4, and replies as their parsers expect."""
