"""Settings of the server: model names, API keys, limits and the address."""

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
    """Settings of a server.

    Attributes:
        model: the judge's name.
        names: model names that clients may use. If empty, any name is accepted and `model` is listed.
        api_keys: required for all requests except probes, unless empty.
        allowed_hosts: additional host names of a server without keys.
        body_timeout_s: time limit for sending a body.
        request_timeout_s: time limit for an answer, including time in the queue.
        max_files_bytes: total size of uploaded files and results, divided equally among keys.
        adapters_folder: folder from which clients may load adapters, or None to disable loading.
    """

    model: str
    names: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    host: str = "127.0.0.1"
    allowed_hosts: tuple[str, ...] = ()
    max_body_bytes: int = 8 << 20
    body_timeout_s: float = 30.0
    request_timeout_s: float = 600.0
    max_files_bytes: int = 2_000_000_000
    adapters_folder: Path | None = None

    @property
    def listed(self) -> tuple[str, ...]:
        """Names listed at `/v1/models`."""
        return self.names or (self.model,)


def public_name(model: str, engine: str) -> str:
    """Return a judge's public name: the hub id, the server's model name, or the folder name."""
    if engine == "scripted":
        return "scripted"
    return Path(model).resolve().name if Path(model).exists() else model


def read_keys(options: list[str], file: Path | None) -> tuple[str, ...]:
    """Read API keys from options, a file and the environment.

    Raises:
        InputError: the file cannot be read or contains no key.
        ConfigError: a key is not printable ASCII.
    """
    keys = [*options, *re.split(r"[,\s]+", os.environ.get(KEYS_VARIABLE, ""))]
    if file is not None:
        try:
            lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
        except (OSError, ValueError) as error:
            raise InputError(f"{file}: cannot read the keys: {error}") from error
        file_keys = [line for line in lines if line and not line.startswith("#")]
        if not file_keys:
            raise InputError(f"{file}: no key found; write one per line")
        keys += file_keys
    if not all(re.fullmatch(r"[!-~]*", key) for key in keys):
        raise ConfigError("API keys must be printable ASCII without spaces; choose another key")
    return tuple(dict.fromkeys(key for key in keys if key))


def check_exposure(
    host: str, secret: object, *, no_auth: bool, way_out: str, allowed_hosts: Sequence[str] = ()
) -> None:
    """Raise ConfigError if other machines can reach the address without a secret, or options conflict."""
    if secret and no_auth:
        raise ConfigError("--no-auth conflicts with API keys and passwords; omit one")
    if secret and allowed_hosts:
        raise ConfigError("--allowed-host is for servers without a key or password; omit it")
    if not (secret or no_auth or _is_local(host)):
        ways_out = f"{way_out}, or allow everyone with --no-auth"
        raise ConfigError(f"--host {host} is reachable from other machines: {ways_out}")


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a host name
        return False


def bind(host: str, port: int) -> socket.socket:
    """Bind a socket without listening, before the model is loaded. ConfigError: the address is not available."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
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
