"""Studies made readable: figures, words and one self-contained HTML file; nothing is computed here."""
