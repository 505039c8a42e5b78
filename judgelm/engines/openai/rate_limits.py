"""Parse the pause requested by a server, and limit concurrent requests.

OpenAI: "Please try again in 6m0s", `x-ratelimit-reset-requests: 1m2.5s`. Azure: "Please retry after 26 seconds".
Google: `"retryDelay": "34s"`. Anthropic: an ISO date in `anthropic-ratelimit-requests-reset`. OpenRouter: headers in
the body, in milliseconds. Cerebras: `x-ratelimit-reset-requests-day`.
"""

import asyncio
import math
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import mktime_tz, parsedate_tz

_FLAGS = re.IGNORECASE | re.ASCII
_NUMBER = r"\d++(?:\.\d++)?"
_UNIT = (
    r"(?:ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)(?![a-z])"
    r"|(?:ms|[smhd])(?=\d)"  # 6m0s
)
_PART = re.compile(rf"({_NUMBER})\s*({_UNIT})", _FLAGS)
_PARTS = rf"{_NUMBER}\s*(?:{_UNIT})(?:(?:\s|,|\band\b)*{_NUMBER}\s*(?:{_UNIT}))*"
_DATE = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\s?UTC|[+-]\d\d:?\d\d)?"
_WORDS = re.compile(
    rf"\b(?:try|retry\w*|again|wait|resets|will reset|reset (?:in|at|on))\b[^0-9]{{0,25}}?(?:({_PARTS})|({_DATE}))",
    _FLAGS,
)
_FIELD = re.compile(r"""["']((?:[\w-]*ratelimit|retry[-_]after)[\w-]*)["']\s*:\s*["']?([^"',}\]]+)""", _FLAGS)
_MAX_BODY = 10_000
_UNIT_S = {"ms": 0.001, "mi": 60.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MAX_PAUSE_S = 1e9
"""Larger numbers are Unix times in seconds or milliseconds."""


def stated_pause_s(headers: Mapping[str, str], body: str = "", *, limited: bool = True) -> float | None:
    """Return the pause that the server requests, in seconds, if any.

    For rate limit errors, fall back to the time at which the limit resets.
    """
    body = body[:_MAX_BODY]
    fields = {name.lower().replace("_", "-"): value for name, value in _FIELD.findall(body)}
    fields |= {name.lower(): value for name, value in headers.items()}
    if (milliseconds := fields.get("retry-after-ms")) is not None:
        return _seconds(f"{milliseconds}ms")
    for name in ("retry-after", "retry-after-seconds"):
        if (stated := _seconds(fields.get(name, ""))) is not None:
            return stated
    if (words := _WORDS.search(body)) is not None:
        return _seconds(words[1] or words[2])
    resets = (_seconds(value) for name, value in fields.items() if _counts(name, fields)) if limited else ()
    return max((seconds for seconds in resets if seconds is not None), default=None)


def _counts(name: str, fields: Mapping[str, str]) -> bool:
    remaining = fields.get(name.replace("reset", "remaining"), "0")
    return "ratelimit" in name and "reset" in name and not re.fullmatch(r"0*[1-9]\d*", remaining.strip())


def _seconds(text: str) -> float | None:
    """Parse `2`, `1.5s`, `6m0s`, `2 hours`, an HTTP or ISO date, or a Unix time."""
    text = text.strip()
    try:
        seconds = _duration(text) if re.fullmatch(rf"{_NUMBER}|{_PARTS}", text, _FLAGS) else _date(text) - time.time()
    except (ValueError, OverflowError):  # not a date, or a year such as 99999
        return None
    return max(0.0, seconds) if seconds < _MAX_PAUSE_S else None


def _duration(text: str) -> float:
    if parts := _PART.findall(text):
        return sum(float(value) * _unit_s(unit.lower()) for value, unit in parts)
    number = float(text)
    if number < _MAX_PAUSE_S:
        return number
    return (number if number < 1000 * _MAX_PAUSE_S else number / 1000) - time.time()


def _date(text: str) -> float:
    if (date := parsedate_tz(text)) is not None:
        return mktime_tz(date)
    moment = datetime.fromisoformat(text.upper().replace(" UTC", "Z"))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _unit_s(unit: str) -> float:
    if unit.startswith("mil"):
        return _UNIT_S["ms"]
    return _UNIT_S[unit] if unit in _UNIT_S else _UNIT_S[unit[0]]


def shown_duration(seconds: float) -> str:
    """Format a duration as `20 s`, `6 min`, or `24 h`, rounded up."""
    unit, size = next(((unit, size) for unit, size in (("h", 3600), ("min", 60)) if seconds >= 2 * size), ("s", 1))
    return f"{math.ceil(seconds / size)} {unit}"


def shown_time(seconds: float) -> str:
    """Format the local time `seconds` from now."""
    return datetime.fromtimestamp(time.time() + seconds).astimezone().strftime("%Y-%m-%d %H:%M %Z")


class AdaptiveLimiter:
    """Limits concurrent requests with TCP-style congestion control."""

    def __init__(self, max_limit: int) -> None:
        self.max_limit = max_limit
        self.limit = max_limit
        self._in_flight = 0
        self._successes = 0
        self._halved_at = 0.0
        self._closed_until = 0.0
        self._room = asyncio.Event()

    async def __aenter__(self) -> float:
        """Wait for a slot and return the send time."""
        while True:
            pause_s = self._closed_until - time.monotonic()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            elif self._in_flight >= self.limit:
                self._room.clear()
                await self._room.wait()
            else:
                self._in_flight += 1
                return time.monotonic()

    async def __aexit__(self, *_: object) -> None:
        """Release the slot without awaiting, so that cancellation is safe."""
        self._in_flight -= 1
        self._room.set()

    def succeeded(self) -> None:
        """Record a success, and increase the limit after `limit` successes."""
        self._successes += 1
        if self._successes >= self.limit and self.limit < self.max_limit:
            self.limit += 1
            self._successes = 0

    def overloaded(self, sent_at: float, pause_s: float | None) -> None:
        """Halve the limit, once per burst of errors."""
        now = time.monotonic()
        if sent_at >= self._halved_at:
            self.limit = max(1, self.limit // 2)
            self._successes = 0
            self._halved_at = now
        if pause_s is not None:
            self._closed_until = max(self._closed_until, now + pause_s)
