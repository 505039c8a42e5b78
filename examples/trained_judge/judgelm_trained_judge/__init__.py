"""The adapter of judgelm's trained judge, as files beside this one. judgelm reads them and imports nothing of this."""
