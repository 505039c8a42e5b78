"""Parameters that a server does not support, learned from its refusals, and request bodies without them.

There is no list of servers: each names the unknown field itself, in a 400. A parameter whose removal helped is left out
of all later requests.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

CONTINUATION = {"add_generation_prompt": False, "continue_final_message": True}
CHAT_TEMPLATE = "chat_template_kwargs"
FEW_TOP_LOGPROBS = 5
_PLAIN = ("temperature", "stop", "seed", "n", CHAT_TEMPLATE)
_LOGPROBS = ("logprobs", "top_logprobs")
_TOO_LONG = re.compile(
    r"context.{0,30}(length|size|window)|maximum (model|input|prompt|sequence) length|max_model_len"
    r"|(prompt|input).{0,40} too long|longer than the (model|maximum)|inputs.{0,3} tokens \+",
    re.IGNORECASE,
)
_OUT_OF_RANGE = re.compile(r"at most|maximum|minimum|less than|greater than|between|<=|>=|too (large|long|many|high)")


@dataclass(eq=False)
class RefusedError(Exception):
    """The server refused a request for its content, not for its load; a retry would not help."""

    status: int
    message: str
    code: str = ""
    param: str = ""

    @property
    def too_long(self) -> bool:
        """True if the prompt does not fit into the model's window."""
        text = self.code + " " + self.message
        return self.status in (400, 413, 422) and ("context_length" in text or bool(_TOO_LONG.search(text)))

    @property
    def fatal(self) -> bool:
        """True if every other request would be refused as well: key, money, quota, model."""
        return self.status in (401, 402, 403, 404) or self.code == "insufficient_quota"

    @property
    def exceeds_rate_limit(self) -> bool:
        """True if this single request has more tokens than the rate limit allows (OpenAI's words)."""
        return self.status == 429 and "request too large" in self.message.lower()

    def __str__(self) -> str:
        return f"HTTP {self.status}: {self.message}"


def unsupported_param(refused: RefusedError, body: Mapping[str, Any]) -> str | None:
    """The parameter to leave out, so that the server may take the request; None where none is named.

    Args:
        refused: the server's refusal.
        body: the refused request.
    """
    if refused.too_long or refused.status not in (400, 403, 422):
        return None
    if "max_tokens" in body and "max_completion_tokens" in refused.message:
        return "max_tokens"
    if any(name in body and _names(refused, name) for name in CONTINUATION):
        return "continuation"
    if "logprobs" in body and any(_names(refused, name) for name in _LOGPROBS):
        many = max(int(body["logprobs"]), body.get("top_logprobs", 0)) > FEW_TOP_LOGPROBS
        return "many_logprobs" if many else "logprobs"
    if "n" in body and "one completion choice" in refused.message:  # llama.cpp's words
        return "n"
    if _OUT_OF_RANGE.search(refused.message):  # the server has the parameter, and this request alone is wrong
        return None
    return next((name for name in _PLAIN if name in body and _names(refused, name)), None)


def without_unsupported(body: Mapping[str, Any], unsupported: Collection[str]) -> dict[str, Any]:
    """The body without the unsupported parameters, or with their replacements."""
    supported = {name: value for name, value in body.items() if name not in unsupported}
    if "max_tokens" in unsupported:
        supported["max_completion_tokens"] = body["max_tokens"]
    if "continuation" in unsupported:
        supported = {name: value for name, value in supported.items() if name not in CONTINUATION}
    if "logprobs" in unsupported:
        supported.pop("top_logprobs", None)
    elif "many_logprobs" in unsupported and "logprobs" in supported:
        name = "top_logprobs" if "top_logprobs" in supported else "logprobs"
        supported[name] = min(supported[name], FEW_TOP_LOGPROBS)
    return supported


def _names(refused: RefusedError, name: str) -> bool:
    """True if the server's message names this field; a single letter counts only in quotes."""
    quoted = rf"['\"`]{name}['\"`]" if len(name) == 1 else rf"(?<![A-Za-z_]){name}(?![A-Za-z_])"
    return refused.param == name or re.search(quoted, refused.message) is not None
