"""The report of a built data set."""
