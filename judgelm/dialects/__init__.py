"""Recognise and split prompts that other programs send to GPT-4 as a judge, and reply as their parsers expect."""
