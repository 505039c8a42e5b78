"""Order effects of a judge, without labels."""
