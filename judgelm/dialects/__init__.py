"""Recognises and splits the judge prompts that clients send to GPT-4, and replies in the format they expect."""
