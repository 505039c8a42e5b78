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
        model: the judge's own name.
        names: model names that clients may use; empty accepts any name and lists the judge's own.
        api_keys: required for every request but `/healthz`; empty requires none.
        host: address that is served, by which a server without keys may be used.
        allowed_hosts: further names by which a server without keys may be used.
        max_body_bytes: largest body of a request.
        body_timeout_s: for a client to send a whole body.
        request_timeout_s: for an answer, waiting for the engine included.
        max_files_bytes: of all uploaded files and results together; each key has an equal share.
        adapters_folder: where clients may load adapters from while the server runs; None refuses to load any.
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
        """Names at `/v1/models`."""
        return self.names or (self.model,)

    def accepts(self, name: str) -> bool:
        """True where clients may use this model name."""
        return not self.names or name in self.names


def public_name(model: str, engine: str) -> str:
    """A judge's name for clients: a hub id or a server's name unchanged, of a folder its last part."""
    if engine == "scripted":
        return "scripted"
    return Path(model).resolve().name if Path(model).exists() else model


def read_keys(options: list[str], file: Path | None) -> tuple[str, ...]:
    """API keys from the options, a file with one per line, and the environment (separated by commas or blanks).

    Raises:
        InputError: the file cannot be read, or has no key.
        ConfigError: a key that no client could send.
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
        raise ConfigError("API keys must be printable ASCII without blanks; choose another key")
    return tuple(dict.fromkeys(key for key in keys if key))


def check_exposure(
    host: str, secret: object, *, no_auth: bool, way_out: str, allowed_hosts: Sequence[str] = ()
) -> None:
    """Refuse to serve other machines without a key or a password by accident.

    Args:
        host: address to serve at.
        secret: the keys or the password; empty or None without.
        no_auth: allow everybody.
        way_out: option or variable that sets a secret, for the error.
        allowed_hosts: names of a server without a secret.

    Raises:
        ConfigError: the address is reachable from other machines, and there is no secret; or options exclude others.
    """
    if secret and no_auth:
        raise ConfigError("--no-auth excludes API keys and passwords; leave one of them out")
    if secret and allowed_hosts:
        raise ConfigError("--allowed-host is for servers without a key or password; leave it out")
    if not (secret or no_auth or _is_local(host)):
        raise ConfigError(
            f"--host {host} is reachable from other machines: {way_out}, or add --no-auth to allow everybody"
        )


def _is_local(host: str) -> bool:
    """True where an address is reachable from this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name
        return False


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to an address before the model is loaded; it does not listen yet.

    Raises:
        ConfigError: the address is not available.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
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
