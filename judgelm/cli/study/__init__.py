"""`judgelm study NAME`: what the papers did, as commands on the user's own judgments."""
