"""The adapter of judgelm's small judge, as files beside this one. judgelm reads them and imports nothing of this."""
