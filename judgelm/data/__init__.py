"""Data: readers of files, label codes, published sources, labelled sets and the data builder."""
