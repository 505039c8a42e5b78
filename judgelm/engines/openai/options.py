"""Options of the OpenAI-compatible engine: the endpoint, its limits, and the price of its tokens."""

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

_OPENAI = "https://api.openai.com/v1"
_SERVER_DECIDES = {
    "adapter": "serve the adapter as a model of its own and pass its name as --model",
    "quantization": "the server decides how its weights are stored",
    "max_num_batched_tokens": "the server batches itself; --engine-arg concurrency=... limits the requests at once",
}


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class EndpointOptions:
    """The engine's own arguments (`--engine-arg name=value`).

    Attributes:
        base_url: address of the API, with its `/v1`; default: OPENAI_BASE_URL, else OpenAI's own. Several addresses,
            separated by commas, are servers that hold the same model and share the load.
        api_key_env: environment variable that holds the key; local servers usually need none.
        api: `completions` takes plain text, `chat` takes messages; `auto` asks the server which it has.
        concurrency: maximum requests in flight at each server; lowered while the server is overloaded.
        timeout_s: for one request, from sending it to the last byte of the reply.
        retries: how often a request is sent again after an error other than a rate limit.
        backoff_s: approximate wait before the first retry; it doubles with each further one.
        tokenizer: folder or hub id of the model's tokenizer, to measure and truncate prompts.
        price_in: USD per million tokens of prompts; needs `price_out`.
        price_out: USD per million tokens of replies.
        max_cost_usd: cost limit; no request is sent that may exceed it; needs the prices.
        candidate_samples: replies sampled where the server gives no log-probabilities.
        when_down: handling of requests that no server answers: `stop` ends the run, and the same command resumes it;
            `fail` fails them one by one, for a server that must stay up.
    """

    base_url: str = field(default_factory=lambda: os.environ.get("OPENAI_BASE_URL") or _OPENAI)
    api_key_env: str = "OPENAI_API_KEY"
    api: Literal["auto", "chat", "completions"] = "auto"
    concurrency: int = Field(default=32, ge=1)
    timeout_s: float = Field(default=120.0, gt=0)
    retries: int = Field(default=6, ge=0)
    backoff_s: float = Field(default=0.5, ge=0)
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
        """The message for a 401 or 403, without the server's own words, since some repeat the key."""
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
    _refuse_server_options(options)
    try:
        endpoint = _ARGUMENTS.validate_python(dict(options.engine_args))
    except ValidationError as error:
        raise ConfigError(_finding(error)) from error
    for server in endpoint.servers or (endpoint,):
        _check_address(server.base_url)
    _check_key(endpoint)
    _check_prices(endpoint)
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


def _check_prices(endpoint: EndpointOptions) -> None:
    if (endpoint.price_in is None) != (endpoint.price_out is None):
        raise ConfigError("price_in and price_out must be set together (USD per million tokens); 0 is a valid price")
    if endpoint.max_cost_usd is not None and endpoint.price_in is None:
        raise ConfigError("max_cost_usd needs --engine-arg price_in=... and price_out=... (USD per million tokens)")


def _refuse_server_options(options: EngineOptions) -> None:
    for name, way_out in _SERVER_DECIDES.items():
        if getattr(options, name) is not None:
            raise ConfigError(f"the openai engine has no {name}: {way_out}")
    for name in ("dtype", "device"):
        if getattr(options, name) != "auto":
            raise ConfigError(f"the openai engine has no {name}: the server decides it; leave it at auto")


def _finding(error: ValidationError) -> str:
    first: Any = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"]) or "engine arguments"
    known = ", ".join(option.name for option in fields(EndpointOptions))
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"the openai engine has no argument {name!r}; available: {known}"
    shown = "" if name.startswith(("base_url", "api_key_env")) else f"={first['input']!r}"  # these may hold a secret
    return f"openai engine argument {name}{shown}: {first['msg']}; available: {known}"
