"""Shared code of the tests, imported as `tests.support.<module>`."""
