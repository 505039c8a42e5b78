"""The data builder makes cleaned, split, and augmented training and validation sets from labelled files."""
