"""judgelm: fine-tune open judge models and run them locally. Importing this package loads no torch."""

__version__ = "0.1.0"
