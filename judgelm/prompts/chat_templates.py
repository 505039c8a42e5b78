"""Renders a tokenizer's chat template within bounds: it comes with the model, and its loops may be endless.

transformers runs templates in jinja's sandbox, which bounds neither time nor memory. Here the lines that a template
runs, the memory that the process gains meanwhile and the length of the text are bounded. A single operation is not
interrupted; powers, of which one can take for ever, are refused. Counting lines slows a rendering down (0.4 instead of
0.01 ms for a short template), so it ends once a template has rendered 50 conversations, and goes on for those that are
longer than all before.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from types import FrameType
from typing import Any, Protocol

import psutil
from jinja2 import Environment, TemplateError, TemplateRuntimeError

MOST_LINES = 200_000
"""Lines of a template in one rendering; a conversation takes some hundreds."""
_MOST_SECONDS = 5.0
_MOST_BYTES = 256 << 20
_CHECKED_EVERY_S = 0.002
_TEXT_ROOM, _TIMES = 100_000, 10
_WATCHED = 50
_FILE = "<template>"  # jinja's name for a template that is no file
_ERRORS = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RuntimeError, MemoryError)


_rendered: dict[str, tuple[int, int]] = {}
"""Conversations that each template rendered, and the characters of the longest."""


class HasChatTemplate(Protocol):
    """The used part of a transformers tokenizer."""

    chat_template: str | None

    def apply_chat_template(self, conversation: list[dict[str, Any]], **options: object) -> str:
        """The conversation as one string."""
        ...


def render_chat(tokenizer: HasChatTemplate, messages: list[dict[str, Any]], **options: object) -> str:
    """The conversation in the tokenizer's chat template, as one string; `options` go to `apply_chat_template`.

    Raises:
        TemplateError: the template fails or refuses the messages, or needs more than a template may.
        ValueError: the tokenizer has none.
    """
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, str) and _has_power(template):
        raise TemplateRuntimeError("it computes a power, which no chat needs")
    given = sum(len(str(message.get("content"))) for message in messages)
    rendered, longest = _rendered.get(str(template), (0, 0))
    try:
        with nullcontext() if rendered >= _WATCHED and given <= longest else _bounded():
            text = tokenizer.apply_chat_template(messages, tokenize=False, **options)
    except TemplateError:
        raise
    except _ERRORS as error:
        if template is None:
            raise
        raise TemplateRuntimeError(f"{type(error).__name__}: {error}") from error
    _rendered[str(template)] = (rendered + 1, max(longest, given))
    if len(text) > _TEXT_ROOM + _TIMES * given:
        raise TemplateRuntimeError(f"it makes a text of {len(text):,} characters out of {given:,}")
    return text


@lru_cache(maxsize=64)
def _has_power(template: str) -> bool:
    """True if an expression has `**`, other than before the arguments of a call."""
    before = ""
    for _, kind, value in Environment().lex(template):
        if kind == "operator" and value == "**" and before not in ("(", ","):
            return True
        before = before if kind == "whitespace" else value
    return False


@contextmanager
def _bounded() -> Iterator[None]:
    """Context in which templates of this thread run at most so many lines and gain so much memory.

    Raises:
        TemplateRuntimeError: in the template, at its next line.
    """
    lines, began = 0, time.thread_time()
    memory, check_at = 0, began + _CHECKED_EVERY_S  # memory is read only once a template takes that long

    def on_line(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines, memory, check_at
        lines += 1
        if lines > MOST_LINES:
            raise TemplateRuntimeError(f"it runs more than {MOST_LINES:,} lines")
        if (now := time.thread_time()) > check_at:
            if now - began > _MOST_SECONDS:
                raise TemplateRuntimeError(f"it takes more than {_MOST_SECONDS:g} seconds")
            now_used = psutil.Process().memory_info().rss
            memory = memory or now_used
            if now_used - memory > _MOST_BYTES:
                raise TemplateRuntimeError(f"it takes more than {_MOST_BYTES >> 20} MB of memory")
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
