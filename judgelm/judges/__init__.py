"""Named and released judges: their cards, and the installation of adapters and bases.

judgelm contains no weights, and only `judgelm judges install` downloads any.
"""
