"""The tabs of the web page."""
