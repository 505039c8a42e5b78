"""Which reading and which words an untrained model should be judged by; see `__main__.py`."""
