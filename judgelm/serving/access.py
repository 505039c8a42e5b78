"""Access control by API key or, on servers without keys, by host name."""

import hashlib
import hmac
import ipaddress
import re
import socket
from collections.abc import Iterable

from judgelm.errors import ConfigError
from judgelm.serving.http_errors import CLOSE, HttpError

Headers = Iterable[tuple[bytes, bytes]]

_BEARER = b"bearer "
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]@/?#,]+))(?::\d*)?")


class ApiKeys:
    """Client API keys, compared in constant time."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def accept(self, headers: Headers) -> bool:
        """Whether a request has a valid API key, or the server has no keys.

        Reads `Authorization: Bearer KEY`, Azure's `api-key`, and Anthropic's `x-api-key`.
        """
        is_known = not self._digests
        for name, value in headers:
            if name == b"authorization" and value[: len(_BEARER)].lower() == _BEARER:
                sent = _digest(value[len(_BEARER) :].strip())
            elif name in (b"api-key", b"x-api-key"):
                sent = _digest(value.strip())
            else:
                continue
            for known in self._digests:
                is_known |= hmac.compare_digest(sent, known)
        return is_known


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class KnownHosts:
    """Allowed host names for servers without keys or a password, to block DNS rebinding and cross-site requests.

    Local names and `host` are always allowed. Binding to 0.0.0.0 or :: also allows any IP address.
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
        """Return a 421 error for an unknown host, a 403 error for a cross-site request, or None."""
        sent: dict[bytes, list[str]] = {b"host": [], b"origin": []}
        for name, value in headers:
            if name in sent:
                sent[name].append(value.decode("latin-1"))
        host = _name_in(sent[b"host"][0]) if len(sent[b"host"]) == 1 else None
        is_known = host in self._names or "*" in self._names or (self._any_address and _is_address(host or ""))
        if host is None or not is_known:
            shown = ", ".join(sent[b"host"])[:100]
            finding = f"unknown host {shown!r}; a server without a key or password accepts only known host names"
            return self._error(421, "unknown_host", finding, host)
        for origin in sent[b"origin"]:
            site = _name_in(origin.partition("://")[2])
            if site is None or (site != host and site not in self._names):
                finding = f"cross-site request from {origin[:100]!r}; this server has no key or password"
                return self._error(403, "foreign_origin", finding, site)
        return None

    def _error(self, status: int, code: str, finding: str, name: str | None) -> HttpError:
        way_out = f"start the server with --allowed-host {name[:100] if name else 'NAME'}, or {self._way_out}"
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
