"""The text of a judgment after its answers have been swapped."""
