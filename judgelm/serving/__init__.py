"""The HTTP server for GPT-4 judge clients, and the web page. Both are ASGI apps that share one engine."""
