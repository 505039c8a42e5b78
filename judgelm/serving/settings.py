"""Server settings: model names, API keys, limits, and the address."""

import ipaddress
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from judgelm.errors import ConfigError, InputError

KEYS_VARIABLE = "JUDGELM_API_KEYS"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Server settings.

    Attributes:
        model: name of the judge.
        names: model names that clients may use; if empty, any name is accepted.
        api_keys: required for all requests except health checks; if empty, no key is required.
        allowed_hosts: additional host names to accept if there are no API keys.
        body_timeout_s: timeout for receiving the request body.
        request_timeout_s: timeout for answering a request, including time in the queue.
    """

    model: str
    names: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    host: str = "127.0.0.1"
    allowed_hosts: tuple[str, ...] = ()
    max_body_bytes: int = 8 << 20
    body_timeout_s: float = 30.0
    request_timeout_s: float = 600.0

    @property
    def listed(self) -> tuple[str, ...]:
        """The names that `/v1/models` lists."""
        return self.names or (self.model,)


def read_keys(options: list[str], file: Path | None) -> tuple[str, ...]:
    """Collect API keys from the command line, a file, and the environment.

    Raises:
        InputError: the file cannot be read or does not contain a key.
        ConfigError: a key contains spaces or characters other than printable ASCII.
    """
    keys = [*options, *re.split(r"[,\s]+", os.environ.get(KEYS_VARIABLE, ""))]
    if file is not None:
        try:
            lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
        except (OSError, ValueError) as error:
            raise InputError(f"{file}: cannot read the API keys: {error}") from error
        file_keys = [line for line in lines if line and not line.startswith("#")]
        if not file_keys:
            raise InputError(f"{file}: no API keys found; expected one per line")
        keys += file_keys
    if not all(re.fullmatch(r"[!-~]*", key) for key in keys):
        raise ConfigError("API keys must be printable ASCII without spaces; choose a different key")
    return tuple(dict.fromkeys(key for key in keys if key))


def check_exposure(
    host: str, secret: object, *, no_auth: bool, way_out: str, allowed_hosts: Sequence[str] = ()
) -> None:
    """Raise ConfigError if other machines can reach the server without a secret, or if options conflict."""
    if secret and no_auth:
        raise ConfigError("--no-auth conflicts with API keys and passwords; omit one")
    if secret and allowed_hosts:
        raise ConfigError("--allowed-host only applies to servers without a key or password; omit it")
    if not (secret or no_auth or _is_local(host)):
        ways_out = f"{way_out}, or pass --no-auth to allow everyone"
        raise ConfigError(f"--host {host} is reachable from other machines: {ways_out}")


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a host name
        return False


def bind(host: str, port: int) -> socket.socket:
    """Bind a socket without listening, so that we can raise ConfigError before the model is loaded."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise ConfigError(f"--host {host} --port {port}: {error.strerror or error}; choose another port") from error
    return bound
