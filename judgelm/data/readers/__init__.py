"""File readers: formats, rows with their fields, and rejects. Readers raise InputError for unusable files and rows."""
