"""Published layouts of samples, labels and judgments, and their readers. Unusable files and rows raise InputError."""
