"""Real results of the papers' analyses, on published answers and published judgments."""
