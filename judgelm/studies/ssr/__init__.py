"""The judge's own answer as the reference, never, always or selectively (SSR-Judge)."""
