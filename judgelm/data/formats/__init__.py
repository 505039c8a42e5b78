"""Known row formats and how their rows become samples, labels and judgments."""
