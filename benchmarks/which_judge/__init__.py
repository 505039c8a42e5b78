"""The table of judges: cards, published figures with their sources, stored results."""
