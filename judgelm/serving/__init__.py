"""The server that GPT-4-judge clients point at, and the page for people: importable apps around one engine."""
