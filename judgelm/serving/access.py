"""Access control: API keys, or known host names for servers without keys."""

import hashlib
import hmac
import ipaddress
import re
import socket
from collections.abc import Iterable

from judgelm.errors import ConfigError
from judgelm.serving.http_errors import CLOSE, HttpError

Headers = Iterable[tuple[bytes, bytes]]
"""Header names are in lower case, as in ASGI."""

EVERYONE = ""
"""The owner of all files, batches and adapters on a server without keys."""

_BEARER = b"bearer "
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]@/?#,]+))(?::\d*)?")


class ApiKeys:
    """API keys of clients, compared in constant time."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def owner(self, headers: Headers) -> str | None:
        """Return a digest of the request's key, or None if it is missing or invalid. Without keys, return `EVERYONE`.

        Keys are read from `Authorization: Bearer KEY`, Azure's `api-key` or Anthropic's `x-api-key`.
        """
        owner = None if self._digests else EVERYONE
        for name, value in headers:
            if name == b"authorization" and value[: len(_BEARER)].lower() == _BEARER:
                sent = _digest(value[len(_BEARER) :].strip())
            elif name in (b"api-key", b"x-api-key"):
                sent = _digest(value.strip())
            else:
                continue
            for known in self._digests:
                if hmac.compare_digest(sent, known):
                    owner = known.hex()
        return owner


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class KnownHosts:
    """Host names for a server without a key or password: local names, its address and `allowed` names.

    This blocks DNS rebinding and forms on other sites. 0.0.0.0 and :: allow all IP addresses; `*` allows all names.
    """

    def __init__(self, host: str, allowed: Iterable[str] = (), *, way_out: str = "set a key (--api-key-file)") -> None:
        self._names = {*_LOCAL_NAMES, _plain(host)}
        for name in allowed:
            if (known := _name_in(name)) is None:
                raise ConfigError(f"--allowed-host {name}: expected a name such as judge.example.org, without a scheme")
            self._names.add(known)
        self._any_address = _plain(host) in ("0.0.0.0", "::")
        if self._any_address:
            self._names.add(_plain(socket.gethostname()))
        self._way_out = way_out

    def refusal(self, headers: Headers) -> HttpError | None:
        """Return the error for an unknown host (421) or a page from another site (403)."""
        sent: dict[bytes, list[str]] = {b"host": [], b"origin": []}
        for name, value in headers:
            if name in sent:
                sent[name].append(value.decode("latin-1"))
        host = _name_in(sent[b"host"][0]) if len(sent[b"host"]) == 1 else None
        is_known = host in self._names or "*" in self._names or (self._any_address and _is_address(host or ""))
        if host is None or not is_known:
            shown = ", ".join(sent[b"host"])[:100]
            finding = f"host {shown!r} is not a known name of this server, which has no key or password"
            return self._error(421, "unknown_host", finding, host)
        for origin in sent[b"origin"]:
            site = _name_in(origin.partition("://")[2])
            if site is None or (site != host and site not in self._names):
                finding = f"origin {origin[:100]!r} is another site, and this server has no key or password"
                return self._error(403, "foreign_origin", finding, site)
        return None

    def _error(self, status: int, code: str, finding: str, name: str | None) -> HttpError:
        way_out = f"start it with --allowed-host {name[:100] if name else 'NAME'}, or {self._way_out}"
        return HttpError(status, code, f"{finding}; {way_out}", headers=CLOSE)


def _name_in(authority: str) -> str | None:
    match = _AUTHORITY.fullmatch(authority)
    return None if match is None else _plain(match[1] or match[2])


def _plain(name: str) -> str:
    name = name.lower().removesuffix(".")
    return ipaddress.ip_address(name).compressed if _is_address(name) else name


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
