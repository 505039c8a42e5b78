"""Present results as figures, sentences, and self-contained HTML. No results are computed here."""
