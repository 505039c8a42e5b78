"""The adapter of judgelm's trained judge, as files in this folder. judgelm reads them and never imports this module."""
