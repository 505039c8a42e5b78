"""The tests. A package, so that they import `tests.support` wherever pytest is started."""
