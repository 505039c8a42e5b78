"""File readers: formats, rows with their fields, and rejects. Unusable files and rows raise InputError."""
