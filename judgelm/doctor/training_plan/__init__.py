"""Memory, operations and time of a fine-tuning, before it starts."""
