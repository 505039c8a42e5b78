"""Whether a judge judges what it cannot answer (Self-Reference)."""
