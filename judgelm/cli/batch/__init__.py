"""`judgelm-batch`."""
