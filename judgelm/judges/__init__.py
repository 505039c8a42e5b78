"""Judges that judgelm knows by name: cards as data files, and the installation of their adapters and bases.

No weights are part of judgelm, and only `judgelm judges install` downloads any.
"""
