"""Token rows for training."""
