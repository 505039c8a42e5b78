"""Options of the OpenAI-compatible engine, and what enforces them: the cost tracker and the limiter of requests.

The maximum cost of a request counts while it is in flight. It counts for good where the reply was cut off, came too
late or stated no usage, since the server may bill it nevertheless. The limit of concurrent requests grows while replies
come, and is halved when the server is overloaded (additive increase, multiplicative decrease, as in TCP).
"""

import base64
import os
import re
from dataclasses import field, fields, replace
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
