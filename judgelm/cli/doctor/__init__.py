"""`judgelm doctor`."""
