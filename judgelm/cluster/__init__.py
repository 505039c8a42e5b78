"""Many workers in place of one engine: each holds an engine of its own, and one driver feeds them all."""
