"""Options for the OpenAI-compatible engine."""

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
_SERVER_DECIDES = {
    "dtype": "it is set on the server; leave it at auto",
    "device": "it is set on the server; leave it at auto",
    "adapter": "serve the adapter as a model and pass its name as --model",
    "quantization": "it is set on the server",
    "max_num_batched_tokens": "it is set on the server; to limit concurrent requests, use --engine-arg concurrency=N",
}


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class EndpointOptions:
    """Arguments for the openai engine (`--engine-arg name=value`).

    Attributes:
        base_url: address of the API, including `/v1`. Defaults to OPENAI_BASE_URL. Separate servers with commas.
        api_key_env: environment variable that contains the API key.
        api: `completions`, `chat`, or `auto` to detect what the server supports.
        concurrency: maximum number of requests in flight per server; reduced if the server is overloaded.
        timeout_s: timeout for a complete request.
        retries: maximum number of retries, not counting rate limits.
        backoff_s: approximate delay before the first retry; doubles with each retry.
        patience_s: maximum time to wait for a rate limit. A longer pause ends the run.
        tokenizer: folder or hub id of the model's tokenizer, used to truncate prompts.
        price_in: USD per million prompt tokens.
        price_out: USD per million reply tokens.
        max_cost_usd: cost limit in USD; requires both prices.
        candidate_samples: number of replies to sample if the server returns no log-probabilities.
        when_down: if no server responds, `stop` ends the run and `fail` fails only the request.
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
        """The API key from the environment."""
        return os.environ.get(self.api_key_env, "").strip() or None

    @property
    def secrets(self) -> tuple[str, ...]:
        """The API key and passwords."""
        passwords = [urlsplit(server.base_url).password for server in self.servers]
        secrets = (self.key, *passwords, *(password and unquote(password) for password in passwords))
        return tuple(secret for secret in secrets if secret)

    @property
    def auth_header(self) -> dict[str, str] | None:
        """The authorisation header for the user and password in the URL."""
        parts = urlsplit(self.base_url)
        if parts.username is None:
            return None
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}

    def rejected_key(self, status: int) -> str:
        """Return a message for HTTP 401 or 403."""
        if self.key is None:
            return f"{self.address} needs an API key (HTTP {status}): set the environment variable {self.api_key_env}"
        return f"{self.address} rejected the API key in {self.api_key_env} (HTTP {status}); set a valid key"

    @property
    def address(self) -> str:
        """The URLs without credentials."""
        urls = [urlsplit(server.base_url) for server in self.servers]
        return ",".join(url._replace(netloc=url.netloc.rpartition("@")[2]).geturl().rstrip("/") for url in urls)


_ARGUMENTS = TypeAdapter(EndpointOptions)


def endpoint_options(options: EngineOptions) -> EndpointOptions:
    """Validate the engine's arguments."""
    for name, way_out in _SERVER_DECIDES.items():
        if getattr(options, name) not in (None, "auto"):
            raise ConfigError(f"the openai engine does not support {name}: {way_out}")
    try:
        endpoint = _ARGUMENTS.validate_python(dict(options.engine_args))
    except ValidationError as error:
        raise ConfigError(_finding(error)) from error
    if not endpoint.base_url.strip():
        raise ConfigError(
            "the openai engine requires a base URL: pass --engine-arg base_url=http://localhost:8000/v1, or set the "
            "environment variable OPENAI_BASE_URL (for OpenAI: https://api.openai.com/v1)"
        )
    for server in endpoint.servers or (endpoint,):
        _check_address(server.base_url)
    _check_key(endpoint)
    if (endpoint.price_in is None) != (endpoint.price_out is None):
        raise ConfigError("price_in and price_out must be set together (USD per million tokens); 0 is a valid price")
    if endpoint.max_cost_usd is not None and endpoint.price_in is None:
        raise ConfigError("max_cost_usd requires --engine-arg price_in=... and price_out=... (USD per million tokens)")
    if options.max_model_len is not None and endpoint.tokenizer is None:
        raise ConfigError("with the openai engine, --max-model-len requires --engine-arg tokenizer=...")
    return endpoint


def _check_address(url: str) -> None:
    shown = " ".join(re.sub("^(https?://)?.*@", r"\1", url, flags=re.DOTALL).split())  # on one line, without a password
    if "?" in url or "#" in url:
        start = "..." if "@" in url else re.split("[?#]", shown)[0]  # both sides may be part of a password
        raise ConfigError(f"base_url={start}: remove everything from the first ? or # onwards")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port or an unclosed bracket
        usable = False
    if not usable or not url.isprintable() or " " in url:
        raise ConfigError(f"base_url={shown} is not a valid http(s) URL; try http://localhost:8000/v1")


def _check_key(endpoint: EndpointOptions) -> None:
    if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", endpoint.api_key_env) is None:
        raise ConfigError(
            "api_key_env must be the name of the environment variable that contains the key, not the key itself"
        )
    if endpoint.key is not None and re.fullmatch("[ -~]+", endpoint.key) is None:
        raise ConfigError(f"the API key in {endpoint.api_key_env} must be a single line of ASCII text; set it again")
    for server in endpoint.servers:
        host = urlsplit(server.base_url).hostname or ""
        if endpoint.key is None and server.auth_header is None and _NEEDS_KEY.search(host):
            way_out = f"set the environment variable {endpoint.api_key_env}, or pass --engine-arg api_key_env=NAME"
            raise ConfigError(f"{server.address} requires an API key: {way_out}")


def _finding(error: ValidationError) -> str:
    first: Any = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"]) or "engine arguments"
    known = ", ".join(option.name for option in fields(EndpointOptions))
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"the openai engine has no argument {name!r}; available: {known}"
    shown = "" if name.startswith(("base_url", "api_key_env")) else f"={first['input']!r}"  # may contain a secret
    return f"openai engine argument {name}{shown}: {first['msg']}; available: {known}"
