"""Named and released judges: their cards, and the installation of adapters and base models.

judgelm contains no weights. Only `judgelm judges install` downloads weights.
"""
