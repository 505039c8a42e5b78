"""Rows of files: formats of files, fields, and rejects."""
