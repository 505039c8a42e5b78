"""The server for GPT-4-judge clients and the web page: importable apps around one engine."""
