"""From samples to a trained judge."""
