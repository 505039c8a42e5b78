"""What a server is told: under which names, for whom, and how much it takes."""

import ipaddress
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from judgelm.errors import ConfigError, InputError

KEYS_VARIABLE = "JUDGELM_API_KEYS"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How the server behaves towards its clients.

    Attributes:
        model: the judge's own name.
        names: model names that clients may say; empty takes any name and lists the judge's own.
        api_keys: one of them must come with every request but `/healthz`; empty asks for none.
        max_body_bytes: largest body of a request.
        body_timeout_s: for a client to send a whole body.
        request_timeout_s: for an answer, waiting for the engine included.
    """

    model: str
    names: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    max_body_bytes: int = 8 << 20
    body_timeout_s: float = 30.0
    request_timeout_s: float = 600.0

    @property
    def listed(self) -> tuple[str, ...]:
        """Names at `/v1/models`."""
        return self.names or (self.model,)

    def takes(self, name: str) -> bool:
        """Whether a client may call the judge so."""
        return not self.names or name in self.names


def public_name(model: str, engine: str) -> str:
    """A judge's name for clients: a hub id or a server's name as it is, of a folder only its own name."""
    if engine == "scripted":
        return "scripted"
    return Path(model).resolve().name if Path(model).exists() else model


def read_keys(given: list[str], file: Path | None) -> tuple[str, ...]:
    """API keys of the options, of a file with one a line, and of the environment, separated by commas or blanks.

    Raises:
        InputError: the file cannot be read, or holds no key.
        ConfigError: something that no client could send as a key.
    """
    found = [*given, *re.split(r"[,\s]+", os.environ.get(KEYS_VARIABLE, ""))]
    if file is not None:
        try:
            lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
        except (OSError, ValueError) as error:
            raise InputError(f"{file}: the keys cannot be read: {error}") from error
        kept = [line for line in lines if line and not line.startswith("#")]
        if not kept:
            raise InputError(f"{file}: holds no key; write one a line")
        found += kept
    keys = tuple(dict.fromkeys(key for key in found if key))
    if not all(re.fullmatch(r"[!-~]+", key) for key in keys):
        raise ConfigError("an API key is printable ASCII without blanks; choose another one")
    return keys


def check_exposure(host: str, keys: tuple[str, ...], *, no_auth: bool) -> None:
    """See that nobody serves a network without a key by accident.

    Raises:
        ConfigError: the address is not this machine's alone, and there is no key.
    """
    if keys and no_auth:
        raise ConfigError("--no-auth was given together with API keys; leave one of them out")
    if not (keys or no_auth or is_local(host)):
        raise ConfigError(
            f"--host {host} can be reached from other machines, and no API key is set: give --api-key-file FILE, set "
            f"{KEYS_VARIABLE}, or say --no-auth if everybody may ask"
        )


def is_local(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name
        return False
