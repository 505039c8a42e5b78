"""Public data sets by name: cards, download from the hub at a locked revision, and rows that the builder reads."""
