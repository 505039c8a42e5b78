"""Readers for published samples, labels, and judgments. They raise InputError for unusable files and rows."""
