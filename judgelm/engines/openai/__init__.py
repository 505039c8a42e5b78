"""The engine for servers that speak OpenAI's API."""
