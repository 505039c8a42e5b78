"""API keys of clients."""

import hashlib
import hmac
from collections.abc import Iterable

_BEARER = b"bearer "


class ApiKeys:
    """Who may ask.

    Digests are compared, all of them and each in constant time, so that the time tells nothing of a key, its length
    included.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    def admit(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether the headers hold a key: `Authorization: Bearer KEY`, or `api-key: KEY` as Azure's clients say it.

        Args:
            headers: names in lower case, as ASGI gives them.
        """
        if not self._digests:
            return True
        admitted = False
        for name, value in headers:
            if name == b"authorization" and value[: len(_BEARER)].lower() == _BEARER:
                given = _digest(value[len(_BEARER) :].strip())
            elif name == b"api-key":
                given = _digest(value.strip())
            else:
                continue
            for known in self._digests:
                admitted |= hmac.compare_digest(given, known)
        return admitted


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
