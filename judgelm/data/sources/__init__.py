"""Published layouts of samples, labels and judgments: one table of sources, and the functions that read them."""
