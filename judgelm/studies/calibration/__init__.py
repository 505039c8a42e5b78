"""Whether a judge's probabilities mean what they say."""
