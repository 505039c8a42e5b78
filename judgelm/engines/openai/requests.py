"""Build request bodies, and omit parameters that the server does not support."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from judgelm.engines.openai.prompts import RenderedPrompt
from judgelm.jsonl import parse_json
from judgelm.prompts.truncation import without_system
from judgelm.records import Sampling

TOP_LOGPROBS = 20
CONTINUATION = {"add_generation_prompt": False, "continue_final_message": True}
CHAT_TEMPLATE = "chat_template_kwargs"
FEW_TOP_LOGPROBS = 5
SYSTEM_MESSAGE = "system_message"
_NO_SYSTEM = re.compile(
    r"system (?:role|message|prompt|instruction)s?.{0,30}(?:not|un)[ -]?(?:be )?(?:supported|allowed|enabled|accepted)"
    r"|(?:not|n't) support.{0,30}\bsystem\b|developer instructions?.{0,20}not enabled|roles? must alternate"
    r"|only user(?:,| and) (?:and )?assistant roles|(?:unexpected|invalid|unknown|unsupported) role:? ['\"`]?system",
    re.IGNORECASE,
)
_PLAIN = ("temperature", "top_p", "stop", "seed", "n", CHAT_TEMPLATE)
_LOGPROBS = ("logprobs", "top_logprobs")
_TOO_LONG = re.compile(
    r"context.{0,30}(length|size|window)|maximum (model|input|prompt|sequence) length|max_model_len"
    r"|(prompt|input).{0,40} too long|longer than the (model|maximum)|inputs.{0,3} tokens \+",
    re.IGNORECASE,
)
_OUT_OF_RANGE = re.compile(r"at most|maximum|minimum|less than|greater than|between|<=|>=|too (large|long|many|high)")


def request_body(model: str, prompt: RenderedPrompt, sampling: Sampling, *, logprobs: bool) -> dict[str, Any]:
    """Build the request body for `sampling.n` replies. `logprobs` requests as many alternatives as possible."""
    body: dict[str, Any] = {
        "model": model,
        "prompt" if prompt.api == "completions" else "messages": prompt.content,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
    }
    if sampling.stop and not sampling.include_stop:  # servers remove stop strings from the reply
        body["stop"] = list(sampling.stop)
    if sampling.n > 1:
        body["n"] = sampling.n
    if sampling.temperature > 0:
        body["seed"] = sampling.seed
    if sampling.top_p < 1:
        body["top_p"] = sampling.top_p
    if (grammar := sampling.grammar) is not None and grammar.kind == "regex":
        body["structured_outputs"] = {"regex": grammar.text}
    elif grammar is not None:
        schema = {"name": "reply", "schema": parse_json(grammar.text), "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if prompt.tools:  # a grammar forces a call, so the server need not parse any
        body |= {"tools": list(prompt.tools), "tool_choice": "none"}
    if prompt.prefill:
        body |= CONTINUATION
    wanted = TOP_LOGPROBS if logprobs else sampling.logprobs
    if wanted is not None:
        wanted = max(1, wanted)  # some servers return no probabilities for 0 alternatives
        body |= {"logprobs": True, "top_logprobs": wanted} if prompt.api == "chat" else {"logprobs": wanted}
    return body


@dataclass(eq=False)
class RefusedError(Exception):
    """Raised if the server rejects a request because of its content."""

    status: int
    message: str
    code: str = ""
    param: str = ""

    @property
    def too_long(self) -> bool:
        """True if the prompt exceeds the context window."""
        text = self.code + " " + self.message
        return self.status in (400, 413, 422) and ("context_length" in text or bool(_TOO_LONG.search(text)))

    @property
    def refuses_system_message(self) -> bool:
        """True if system messages are not supported. llama.cpp returns status 500 in this case."""
        return self.status in (400, 422, 500) and bool(_NO_SYSTEM.search(self.message))

    @property
    def fatal(self) -> bool:
        """True if every request would be rejected."""
        return self.status in (401, 402, 403, 404) or self.code == "insufficient_quota"

    @property
    def exceeds_rate_limit(self) -> bool:
        """True if this request alone exceeds the rate limit."""
        return self.status == 429 and "request too large" in self.message.lower()

    def __str__(self) -> str:
        return f"HTTP {self.status}: {self.message}"


def unsupported_param(refused: RefusedError, body: Mapping[str, Any]) -> str | None:
    """Return the parameter that the server rejects, if any."""
    has_system = any(message["role"] == "system" for message in body.get("messages", ()))
    if has_system and refused.refuses_system_message:
        return SYSTEM_MESSAGE
    if refused.too_long or refused.status not in (400, 403, 422):
        return None
    if "max_tokens" in body and "max_completion_tokens" in refused.message:
        return "max_tokens"
    if any(name in body and _names(refused, name) for name in CONTINUATION):
        return "continuation"
    if "logprobs" in body and any(_names(refused, name) for name in _LOGPROBS):
        many = max(int(body["logprobs"]), body.get("top_logprobs", 0)) > FEW_TOP_LOGPROBS
        return "many_logprobs" if many else "logprobs"
    if "n" in body and "one completion choice" in refused.message:  # llama.cpp
        return "n"
    if _OUT_OF_RANGE.search(refused.message):  # the parameter is supported, but its value is not
        return None
    return next((name for name in _PLAIN if name in body and _names(refused, name)), None)


def without_unsupported(body: Mapping[str, Any], unsupported: Collection[str]) -> dict[str, Any]:
    """Remove or replace unsupported parameters."""
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
    if SYSTEM_MESSAGE in unsupported and "messages" in supported:
        supported["messages"] = without_system(supported["messages"])
    return supported


def _names(refused: RefusedError, name: str) -> bool:
    # a single-letter name must be quoted
    quoted = rf"['\"`]{name}['\"`]" if len(name) == 1 else rf"(?<![A-Za-z_]){name}(?![A-Za-z_])"
    return refused.param == name or re.search(quoted, refused.message) is not None
