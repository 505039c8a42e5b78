"""The data builder: labelled files in; clean, split and augmented training and validation sets out."""
