"""Files in, records out: readers, formats, labels, foreign results and review tables."""
