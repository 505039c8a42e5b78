"""`judgelm data`."""
