"""Renders chat templates within limits on time, memory, and length, and sets their thinking arguments.

A model's chat template may loop forever, which jinja's sandbox does not prevent. Counting lines is slow, so after a
template's first 50 conversations, only conversations longer than all earlier ones are checked.
"""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from types import FrameType
from typing import Any

import psutil
from jinja2 import Environment, TemplateError, TemplateRuntimeError

from judgelm.parsing.thinking import CLOSE, OPEN
from judgelm.records import ThinkingMode

MAX_LINES = 200_000
"""Maximum number of template lines executed per conversation; a few hundred are typical."""
_MAX_SECONDS = 5.0
_MAX_BYTES = 256 << 20
_CHECKED_EVERY_S = 0.002
_TEXT_ROOM, _TIMES = 100_000, 10
_WATCHED = 50
_FILE = "<template>"  # jinja's name for a template that is not a file
_ERRORS = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RuntimeError, MemoryError)

_rendered: dict[str, tuple[int, int]] = {}
"""Number of conversations rendered and length of the longest in characters, keyed by template."""


def render_chat(tokenizer: Any, messages: list[dict[str, Any]], **options: object) -> str:
    """Render a conversation with the tokenizer's chat template; `options` are passed to `apply_chat_template`.

    Raises:
        TemplateError: the template fails, rejects the messages, or exceeds a limit.
        ValueError: the tokenizer has no chat template.
    """
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, str) and _has_power(template):
        raise TemplateRuntimeError("it uses the power operator, which is not allowed in chat templates")
    given = sum(len(str(message.get(name, ""))) for message in messages for name in ("content", "tool_calls"))
    given += len(str(options.get("tools", "")))
    rendered, longest = _rendered.get(str(template), (0, 0))
    try:
        with nullcontext() if rendered >= _WATCHED and given <= longest else _bounded():
            text: str = tokenizer.apply_chat_template(messages, tokenize=False, **options)
    except TemplateError:
        raise
    except _ERRORS as error:
        if template is None:
            raise
        raise TemplateRuntimeError(f"{type(error).__name__}: {error}") from error
    _rendered[str(template)] = (rendered + 1, max(longest, given))
    if len(text) > _TEXT_ROOM + _TIMES * given:
        raise TemplateRuntimeError(f"its output has {len(text):,} characters, but the messages have only {given:,}")
    return text


@lru_cache(maxsize=64)
def _has_power(template: str) -> bool:
    before = ""
    for _, kind, value in Environment().lex(template):
        if kind == "operator" and value == "**" and before not in ("(", ","):
            return True
        before = before if kind == "whitespace" else value
    return False


@contextmanager
def _bounded() -> Iterator[None]:
    lines, began = 0, time.thread_time()
    memory, check_at = 0, began + _CHECKED_EVERY_S  # measuring memory is slow, so short renderings skip it

    def on_line(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines, memory, check_at
        lines += 1
        if lines > MAX_LINES:
            raise TemplateRuntimeError(f"it executes more than {MAX_LINES:,} lines")
        if (now := time.thread_time()) > check_at:
            if now - began > _MAX_SECONDS:
                raise TemplateRuntimeError(f"it takes more than {_MAX_SECONDS:g} seconds")
            now_used = psutil.Process().memory_info().rss
            memory = memory or now_used
            if now_used - memory > _MAX_BYTES:
                raise TemplateRuntimeError(f"it uses more than {_MAX_BYTES >> 20} MB of memory")
            check_at = time.thread_time() + _CHECKED_EVERY_S
        return on_line

    def on_call(frame: FrameType, event: str, _: object) -> Any:
        return on_line if frame.f_code.co_filename == _FILE else None

    tracer = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield
    finally:
        sys.settrace(tracer)


NO_THINKING = f"\n{CLOSE}\n\n"
"""Text that closes the thinking block opened by a chat template, for use if thinking is off."""

_OPENED = re.compile(rf"{OPEN}\s*\Z")


def opening_of(prompt: str) -> str:
    """Return the opening of a thinking block at the end of a prompt, with trailing whitespace; empty if not found."""
    match = _OPENED.search(prompt, max(0, len(prompt) - 64))
    return "" if match is None else match[0]


def template_arguments(mode: ThinkingMode) -> dict[str, bool]:
    """Return chat template arguments: `enable_thinking` (Qwen, GLM, SmolLM) and `thinking` (DeepSeek, Granite)."""
    return {} if mode == "absent" else dict.fromkeys(("enable_thinking", "thinking"), mode == "on")
