"""Options of the OpenAI-compatible engine, and what enforces them: the cost tracker and the limiter of requests.

The maximum cost of a request counts while it is in flight. It counts for good where the reply was cut off, came too
late or stated no usage, since the server may bill it nevertheless. The limit of concurrent requests grows while replies
come, and is halved when the server is overloaded (additive increase, multiplicative decrease, as in TCP).
"""

import asyncio
import base64
import os
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from judgelm.engines.base import EngineOptions
from judgelm.errors import ConfigError

Api = Literal["completions", "chat"]

_NEEDS_KEY = re.compile(
    r"(?:^|\.)(?:openai\.com|(?:openai|ai)\.azure\.com|anthropic\.com|googleapis\.com|mistral\.ai|openrouter\.ai"
    r"|together\.(?:ai|xyz)|groq\.com|deepseek\.com|x\.ai|cohere\.(?:ai|com)|fireworks\.ai|perplexity\.ai|router\.huggingface\.co)$",
    re.IGNORECASE,
)
"""Hosts of companies whose APIs answer nobody without a key."""
_WRAPPING_TOKENS = 64
_PER_MESSAGE_TOKENS = 16
_IMAGE_TOKENS = 50_000
_SERVER_DECIDES = {
    "dtype": "the server decides it; leave it at auto",
    "device": "the server decides it; leave it at auto",
    "adapter": "serve the adapter as a model of its own and pass its name as --model",
    "quantization": "the server decides how its weights are stored",
    "max_num_batched_tokens": "the server batches itself; --engine-arg concurrency=... limits the requests at once",
}


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class EndpointOptions:
    """The engine's own arguments (`--engine-arg name=value`).

    Attributes:
        base_url: address of the API, with its `/v1`; default: OPENAI_BASE_URL. There is no other default: OpenAI itself
            is `https://api.openai.com/v1`. Several addresses, separated by commas, are servers that hold the same model
            and share the load.
        api_key_env: environment variable that holds the key; local servers usually need none.
        api: `completions` takes plain text, `chat` takes messages; `auto` asks the server which it has.
        concurrency: maximum requests in flight at each server; lowered while the server is overloaded.
        timeout_s: for one request, from sending it to the last byte of the reply.
        retries: how often a request is sent again after an error other than a rate limit.
        backoff_s: approximate wait before the first retry; it doubles with each further one.
        patience_s: how long a rate limit may keep all requests waiting. A server that asks for a longer pause ends the
            run immediately, and the same command resumes it.
        tokenizer: folder or hub id of the model's tokenizer, to measure and truncate prompts.
        price_in: USD per million tokens of prompts; needs `price_out`.
        price_out: USD per million tokens of replies.
        max_cost_usd: cost limit; no request is sent that may exceed it; needs the prices.
        candidate_samples: replies sampled where the server gives no log-probabilities.
        when_down: handling of requests that no server answers: `stop` ends the run, and the same command resumes it;
            `fail` fails them one by one, for a server that must stay up.
    """

    base_url: str = field(default_factory=lambda: os.environ.get("OPENAI_BASE_URL", "").strip())
    api_key_env: str = "OPENAI_API_KEY"
    api: Literal["auto", "chat", "completions"] = "auto"
    concurrency: int = Field(default=32, ge=1)
    timeout_s: float = Field(default=120.0, gt=0)
    retries: int = Field(default=6, ge=0)
    backoff_s: float = Field(default=0.5, ge=0)
    patience_s: float = Field(default=600.0, gt=0)
    tokenizer: str | None = None
    price_in: float | None = Field(default=None, ge=0)
    price_out: float | None = Field(default=None, ge=0)
    max_cost_usd: float | None = Field(default=None, gt=0)
    candidate_samples: int = Field(default=16, ge=1)
    when_down: Literal["stop", "fail"] = "stop"

    @property
    def servers(self) -> tuple["EndpointOptions", ...]:
        """The options for each server."""
        urls = dict.fromkeys(stripped for url in self.base_url.split(",") if (stripped := url.strip()))
        return tuple(replace(self, base_url=url) for url in urls)

    @property
    def key(self) -> str | None:
        """The key from the environment; never shown."""
        return os.environ.get(self.api_key_env, "").strip() or None

    @property
    def secrets(self) -> tuple[str, ...]:
        """Key and passwords, which must appear in no log and no error."""
        passwords = [urlsplit(server.base_url).password for server in self.servers]
        secrets = (self.key, *passwords, *(password and unquote(password) for password in passwords))
        return tuple(secret for secret in secrets if secret)

    @property
    def auth_header(self) -> dict[str, str] | None:
        """The header for a user and password in the URL."""
        parts = urlsplit(self.base_url)
        if parts.username is None:
            return None
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}

    def rejected_key(self, status: int) -> str:
        """The message for a 401 or 403, without the server's text, since some servers repeat the key."""
        if self.key is None:
            return f"{self.address} needs a key (HTTP {status}): set the environment variable {self.api_key_env}"
        return f"{self.address} rejects the key in {self.api_key_env} (HTTP {status}); set another one"

    @property
    def address(self) -> str:
        """The URLs without user and password, for messages."""
        urls = [urlsplit(server.base_url) for server in self.servers]
        return ",".join(url._replace(netloc=url.netloc.rpartition("@")[2]).geturl().rstrip("/") for url in urls)


_ARGUMENTS = TypeAdapter(EndpointOptions)


def endpoint_options(options: EngineOptions) -> EndpointOptions:
    """The engine's own arguments, checked.

    Raises:
        ConfigError: an argument is wrong or unknown, or an option is set that the server decides.
    """
    for name, way_out in _SERVER_DECIDES.items():
        if getattr(options, name) not in (None, "auto"):
            raise ConfigError(f"the openai engine has no {name}: {way_out}")
    try:
        endpoint = _ARGUMENTS.validate_python(dict(options.engine_args))
    except ValidationError as error:
        raise ConfigError(_finding(error)) from error
    if not endpoint.base_url.strip():
        raise ConfigError(
            "the openai engine needs the server's address: --engine-arg base_url=http://localhost:8000/v1, or the "
            "environment variable OPENAI_BASE_URL (OpenAI itself: https://api.openai.com/v1)"
        )
    for server in endpoint.servers or (endpoint,):
        _check_address(server.base_url)
    _check_key(endpoint)
    if (endpoint.price_in is None) != (endpoint.price_out is None):
        raise ConfigError("price_in and price_out must be set together (USD per million tokens); 0 is a valid price")
    if endpoint.max_cost_usd is not None and endpoint.price_in is None:
        raise ConfigError("max_cost_usd needs --engine-arg price_in=... and price_out=... (USD per million tokens)")
    if options.max_model_len is not None and endpoint.tokenizer is None:
        raise ConfigError(
            "--max-model-len needs --engine-arg tokenizer=... with the openai engine, to measure prompts; give the "
            "model's tokenizer, or leave it out"
        )
    return endpoint


def _check_address(url: str) -> None:
    shown = " ".join(re.sub("^(https?://)?.*@", r"\1", url, flags=re.DOTALL).split())  # without a password, in one line
    if "?" in url or "#" in url:
        start = "..." if "@" in url else re.split("[?#]", shown)[0]  # either side of it may be part of a password
        raise ConfigError(f"base_url={start}: leave out everything from the first ? or #")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port, an unclosed bracket
        usable = False
    if not usable or not url.isprintable() or " " in url:
        raise ConfigError(f"base_url={shown} is not an http(s) address; try http://localhost:8000/v1")


def _check_key(endpoint: EndpointOptions) -> None:
    if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", endpoint.api_key_env) is None:
        raise ConfigError("api_key_env is the name of an environment variable that holds the key, not the key itself")
    if endpoint.key is not None and re.fullmatch("[ -~]+", endpoint.key) is None:
        raise ConfigError(
            f"the environment variable {endpoint.api_key_env} holds no valid key: a key is one line of "
            "ASCII text; set it again"
        )
    for server in endpoint.servers:
        host = urlsplit(server.base_url).hostname or ""
        if endpoint.key is None and server.auth_header is None and _NEEDS_KEY.search(host):
            raise ConfigError(
                f"{server.address} needs a key: set the environment variable {endpoint.api_key_env}, or name another "
                "one with --engine-arg api_key_env=NAME"
            )


def _finding(error: ValidationError) -> str:
    first: Any = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"]) or "engine arguments"
    known = ", ".join(option.name for option in fields(EndpointOptions))
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"the openai engine has no argument {name!r}; available: {known}"
    shown = "" if name.startswith(("base_url", "api_key_env")) else f"={first['input']!r}"  # these may hold a secret
    return f"openai engine argument {name}{shown}: {first['msg']}; available: {known}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledTokens:
    """Tokens as billed."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: "BilledTokens") -> "BilledTokens":
        return BilledTokens(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
        )

    def __sub__(self, other: "BilledTokens") -> "BilledTokens":
        return BilledTokens(
            prompt_tokens=self.prompt_tokens - other.prompt_tokens,
            completion_tokens=self.completion_tokens - other.completion_tokens,
        )


class OverBudgetError(Exception):
    """A request was not sent, since it might cost more than is left."""


@dataclass(slots=True)
class CostEntry:
    """The cost of one request.

    Attributes:
        usage: as the server stated it; None where it stated none.
        unbilled: whether the server certainly did no work for it.
    """

    usage: BilledTokens | None = None
    unbilled: bool = False


class CostTracker:
    """Counts the tokens of one endpoint. Lives in the endpoint's event loop.

    Args:
        options: the prices, and the cost limit.

    Attributes:
        billed: tokens as the server stated them, also those of discarded replies.
        assumed: the maximum for requests without stated usage.
        unknown_count: number of those requests.
    """

    def __init__(self, options: EndpointOptions) -> None:
        self._options = options
        self.billed = BilledTokens()
        self.assumed = BilledTokens()
        self.unknown_count = 0
        self._reserved = BilledTokens()
        self._settled = asyncio.Event()

    @asynccontextmanager
    async def track(self, body: Mapping[str, Any]) -> AsyncIterator[CostEntry]:
        """Count a request while it is in flight, and its cost afterwards.

        Raises:
            OverBudgetError: it may cost more than is left, whatever the requests in flight cost.
        """
        maximum = max_usage(body)
        await self._wait_for_budget(maximum)
        self._reserved += maximum
        entry = CostEntry()
        try:
            yield entry
        finally:
            self._reserved -= maximum
            if entry.usage is not None:
                self.billed += entry.usage
            elif not entry.unbilled:
                self.assumed += maximum
                self.unknown_count += 1
            self._settled.set()

    def usd(self, usage: BilledTokens) -> float:
        """Cost of a number of tokens; 0 without prices."""
        input_cost = usage.prompt_tokens * (self._options.price_in or 0.0)
        return (input_cost + usage.completion_tokens * (self._options.price_out or 0.0)) / 1e6

    def stats(self) -> dict[str, Any]:
        """Tokens and cost so far, as `Engine.stats` states them."""
        stats: dict[str, Any] = {
            "prompt_tokens": self.billed.prompt_tokens,
            "completion_tokens": self.billed.completion_tokens,
            "replies_of_unknown_cost": self.unknown_count,
        }
        if self._options.price_in is not None:
            stats["cost_usd"] = round(self.usd(self.billed), 6)
            stats["cost_usd_at_most"] = round(self.usd(self.billed + self.assumed), 6)
        if self._options.max_cost_usd is not None:
            stats["max_cost_usd"] = self._options.max_cost_usd
        return stats

    async def _wait_for_budget(self, maximum: BilledTokens) -> None:
        """Wait while only the requests in flight may use up the budget."""
        limit = self._options.max_cost_usd
        while limit is not None and self.usd(self.billed + self.assumed + self._reserved + maximum) > limit:
            spent = self.billed + self.assumed
            if self.usd(spent + maximum) > limit:
                raise OverBudgetError(
                    f"not sent: {self.usd(spent):.6f} USD of max_cost_usd={limit:g} are spent, and this request may "
                    f"cost {self.usd(maximum):.6f}; raise --engine-arg max_cost_usd=... and run the same command again "
                    "to judge the rest"
                )
            self._settled.clear()
            await self._settled.wait()


def max_usage(body: Mapping[str, Any]) -> BilledTokens:
    """The maximum tokens that a request can be billed with.

    Text counts one token per byte of UTF-8, which no tokenizer with byte fallback exceeds, plus the tokens that a
    server may put around it. An image counts as many tokens as OpenAI's most expensive model takes for its largest.
    """
    prompt = body["prompt"] if "prompt" in body else body["messages"]
    if isinstance(prompt, str):
        tokens = len(prompt.encode()) + _WRAPPING_TOKENS
    elif prompt and isinstance(prompt[0], Mapping):
        tokens = sum(_max_tokens(message["content"]) + _PER_MESSAGE_TOKENS for message in prompt) + _WRAPPING_TOKENS
    else:
        tokens = len(prompt)
    per_reply = body["max_tokens"] if "max_tokens" in body else body["max_completion_tokens"]
    return BilledTokens(prompt_tokens=tokens, completion_tokens=per_reply * body.get("n", 1))


def _max_tokens(content: str | Sequence[Mapping[str, Any]]) -> int:
    """Maximum tokens of a message's content: a text, or a list of texts and images."""
    if isinstance(content, str):
        return len(content.encode())
    return sum(len(part["text"].encode()) if part["type"] == "text" else _IMAGE_TOKENS for part in content)


class AdaptiveLimiter:
    """Limits concurrent requests, and holds all back while the server has asked for a pause.

    Args:
        max_limit: upper bound of `limit`.
    """

    def __init__(self, max_limit: int) -> None:
        self.max_limit = max_limit
        self.limit = max_limit
        self._in_flight = 0
        self._successes = 0
        self._halved_at = 0.0
        self._closed_until = 0.0
        self._room = asyncio.Event()

    async def __aenter__(self) -> float:
        """Wait for room; returns the time at which the request is sent."""
        while True:
            pause_s = self._closed_until - time.monotonic()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            elif self._in_flight >= self.limit:
                self._room.clear()
                await self._room.wait()
            else:
                self._in_flight += 1
                return time.monotonic()

    async def __aexit__(self, *_: object) -> None:
        """Make room without awaiting anything: a cancelled request must not keep its slot."""
        self._in_flight -= 1
        self._room.set()

    def succeeded(self) -> None:
        """Count a reply; after `limit` replies the limit grows by one."""
        self._successes += 1
        if self._successes >= self.limit and self.limit < self.max_limit:
            self.limit += 1
            self._successes = 0

    def overloaded(self, sent_at: float, pause_s: float | None) -> None:
        """Halve the limit, since the server refused a request for its load.

        Args:
            sent_at: when the refused request was sent; those sent before the last halving do not count again.
            pause_s: the pause that the server asked for.
        """
        now = time.monotonic()
        if sent_at >= self._halved_at:
            self.limit = max(1, self.limit // 2)
            self._successes = 0
            self._halved_at = now
        if pause_s is not None:
            self._closed_until = max(self._closed_until, now + pause_s)
