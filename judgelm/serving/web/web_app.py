"""The ASGI app that serves the web page."""

import hmac
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import gradio as gr
from fastapi import FastAPI, Request, Response
from starlette.middleware.base import RequestResponseEndpoint
from starlette.responses import PlainTextResponse

from judgelm.serving.access import KnownHosts
from judgelm.serving.server import WatchedServer, uvicorn_config

_GRACE_S = 2
_MAX_UPLOAD = "2gb"
_HERE = Path(__file__).parent
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'none'"
)
"""Gradio requires inline scripts and `eval`. `markup` escapes all texts on the page."""

_HEADERS = {"Content-Security-Policy": _POLICY, "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}
_UNWANTED = ("run_history", "show_error", "ssr_mode", "enable_monitoring", "pwa", "mcp_server")
_OFF: dict[str, Any] = dict.fromkeys(_UNWANTED, False)
_LOGIN_HELP = "Enter any user name, and the password that was set for `judgelm web`."


def web_app(page: gr.Blocks, *, password: str | None = None, hosts: KnownHosts | None = None) -> FastAPI:
    """Return an ASGI app for the page.

    Args:
        page: the return value of `create_page`.
        password: password for the page; if None, no password is required.
        hosts: allowed host names if there is no password; defaults to this machine.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    known = hosts or KnownHosts("127.0.0.1", way_out="set a password")

    @app.middleware("http")
    async def guard(request: Request, call_next: RequestResponseEndpoint) -> Response:
        response: Response
        refusal = known.refusal(request.scope["headers"]) if password is None else None
        if refusal is None:
            response = await call_next(request)
        else:
            response = PlainTextResponse(str(refusal), refusal.status, refusal.headers)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    mounted: FastAPI = gr.mount_gradio_app(
        app,
        page,
        path="/",
        footer_links=[],
        auth=None if password is None else (lambda user, text: hmac.compare_digest(text.encode(), password.encode())),
        auth_message=_LOGIN_HELP,
        max_file_size=_MAX_UPLOAD,
        theme=_theme(),
        css_paths=[_HERE / "style.css"],
        head=f"<script>{(_HERE / 'keys.js').read_text(encoding='utf-8')}</script>",
        **_OFF,
    )
    return mounted


def _theme() -> gr.themes.Base:
    fonts = ["system-ui", "-apple-system", "'Segoe UI'", "Roboto", "sans-serif"]
    mono = ["ui-monospace", "Menlo", "Consolas", "monospace"]
    theme: gr.themes.Base = gr.themes.Default(primary_hue=gr.themes.colors.blue, font=fonts, font_mono=mono)
    return theme.set(
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        checkbox_border_color="*neutral_500",
        checkbox_border_color_dark="*neutral_400",
    )


def serve_page(app: FastAPI, bound: socket.socket) -> None:
    """Serve the page until SIGINT (Ctrl-C) or SIGTERM."""
    config = uvicorn_config(app, lifespan="auto", flush_s=_GRACE_S)
    with suppress(KeyboardInterrupt):  # uvicorn re-raises SIGINT after a clean shutdown
        WatchedServer(config).run(sockets=[bound])
