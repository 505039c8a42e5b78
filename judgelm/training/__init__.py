"""Train judges on labelled samples."""
