"""Present results as figures, sentences, and self-contained HTML, without computing anything."""
