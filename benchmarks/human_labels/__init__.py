"""A judge measured on pairs that people labelled, beside trivial baselines on the same rows."""
