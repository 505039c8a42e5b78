"""The data builder, which creates cleaned, split, and augmented data sets from labelled files."""
