"""Parse replies into scores, labels, levels, or answers, or return the reason why this failed."""
