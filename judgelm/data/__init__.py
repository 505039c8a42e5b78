"""Data handling: file readers, label codes, published sources, labelled sets, and the data builder."""
