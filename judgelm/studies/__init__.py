"""Analyses that turn judgments and labels into numbers for tables and figures, one module or package each."""
