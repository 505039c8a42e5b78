"""One endpoint: sends a request until it is answered, refused, or hopeless, and counts what that took.

A rate limit is not a failure: it is waited for as long as other requests get through. Anything else that a later try
may mend (a connection, a timeout, a 5xx, a torn or senseless reply) is tried again a limited number of times.
"""

import asyncio
import json
import random
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from email.utils import mktime_tz, parsedate_tz
from typing import Any, Literal

import openai

from judgelm.engines.openai_gate import Gate
from judgelm.engines.openai_options import EndpointOptions
from judgelm.engines.openai_quirks import RefusedError, lesson_of, without
from judgelm.engines.openai_replies import BadReplyError, Choice, Usage, read_choices, read_json, read_usage
from judgelm.errors import EngineError

Api = Literal["completions", "chat"]
Kind = Literal["rate_limited", "timeout", "connection", "server_error", "bad_format"]

RATE_LIMIT_PATIENCE_S = 600.0
_LONGEST_BACKOFF_S = 60.0
_BUSY = (429, 503)
_AGAIN = (408, 409, 425)
_NO_KEY = "none-needed"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


class GaveUpError(Exception):
    """This one request was tried often enough, while others were answered."""


@dataclass(eq=False)
class TroubleError(Exception):
    """Something that a later try may mend."""

    kind: Kind
    finding: str
    pause_s: float | None = None


@dataclass(slots=True)
class _Patience:
    """How long one request has been tried."""

    since: float = field(default_factory=time.monotonic)
    tries: int = 0
    failures: int = 0


class Endpoint:
    """Sends requests to one server. Lives in one event loop.

    Args:
        options: where it is and how hard to press it.
        most: most requests under way at once.

    Attributes:
        given_up: fields that the server does not take, see `openai_quirks`.
        requests: how many were sent, retries included.
        retries: how often what went wrong.
        usage: all tokens that were billed, also those of replies that were thrown away.
    """

    def __init__(self, options: EndpointOptions, most: int) -> None:
        self._options = options
        self._client = openai.AsyncOpenAI(
            base_url=options.base_url, api_key=options.key or _NO_KEY, timeout=options.timeout_s, max_retries=0
        )
        self.gate = Gate(most)
        self.given_up: frozenset[str] = frozenset()
        self.requests = 0
        self.retries: Counter[Kind] = Counter()
        self.usage = Usage()
        self._answered_at = 0.0

    async def models(self) -> Any:
        """What `GET /models` says, asked once.

        Raises:
            TroubleError: no usable answer.
            RefusedError: the server wants no such request.
        """
        return read_json(await self._send(self._client.models, "list"))

    async def ask(self, api: Api, body: dict[str, Any]) -> tuple[tuple[Choice, ...], Usage]:
        """The replies to one request, and what they were billed with.

        Raises:
            RefusedError: the server does not take the request.
            GaveUpError: it failed too often, while others were answered.
            EngineError: the endpoint does not answer at all.
        """
        patience = _Patience()
        given_up = self.given_up
        while True:
            try:
                answer = await self._try(api, without(body, given_up), patience)
            except RefusedError as refused:
                lesson = lesson_of(refused, without(body, given_up))
                if lesson is None or lesson in given_up:
                    raise
                given_up |= {lesson}
            except TroubleError as trouble:
                await self._recover(trouble, patience)
            else:
                self.given_up |= given_up
                self._answered_at = time.monotonic()
                self.gate.succeeded()
                return answer

    async def close(self) -> None:
        """Drop the connections."""
        await self._client.close()

    def words(self, error: str) -> str:
        """An error's text in one line, without the key, should the server have repeated it."""
        text = " ".join(error.split())[:400]
        return text.replace(self._options.key, "...") if self._options.key else text

    async def _try(self, api: Api, body: dict[str, Any], patience: _Patience) -> tuple[tuple[Choice, ...], Usage]:
        resource = self._client.completions if api == "completions" else self._client.chat.completions
        content = "prompt" if api == "completions" else "messages"
        arguments = {"model": body["model"], content: body[content]}
        extra = {name: value for name, value in body.items() if name not in arguments}
        async with self.gate as sent_at:
            patience.tries += 1
            try:
                data = read_json(await self._send(resource, "create", **arguments, extra_body=extra))
                usage = read_usage(data)
                self.usage = Usage(
                    prompt_tokens=self.usage.prompt_tokens + usage.prompt_tokens,
                    completion_tokens=self.usage.completion_tokens + usage.completion_tokens,
                )
                return read_choices(data), usage
            except BadReplyError as error:
                raise TroubleError("bad_format", f"the reply is not what the API promises ({error})") from error
            except TroubleError as trouble:
                if trouble.kind == "rate_limited":
                    self.gate.overloaded(sent_at, trouble.pause_s)
                raise

    async def _send(self, resource: Any, method: str, **arguments: Any) -> str:
        """One request; the body of a reply with status 200.

        Raises:
            TroubleError: a later try may mend it.
            RefusedError: it will not.
        """
        self.requests += 1
        try:
            async with asyncio.timeout(self._options.timeout_s):  # the client's own is between two bytes
                response = await getattr(resource.with_raw_response, method)(**arguments)
            text: str = response.text
            return text
        except (TimeoutError, openai.APITimeoutError) as error:
            raise TroubleError("timeout", f"no reply within {self._options.timeout_s:g} s") from error
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            raise TroubleError("connection", self.words(str(cause) or type(cause).__name__)) from error
        except openai.APIStatusError as error:
            raise self._judged(error) from None  # its text may repeat the key

    def _judged(self, error: openai.APIStatusError) -> TroubleError | RefusedError:
        """Whether trying again may help."""
        status, said = error.status_code, self.words(_said(error))
        pause_s = _pause(error.response.headers)
        refused = RefusedError(status, said, error.code or "", str(error.param or ""))
        if refused.fatal:
            return refused
        if status == 429 or (status in _BUSY and pause_s is not None):
            return TroubleError("rate_limited", f"HTTP {status}: {said}", pause_s)
        if status >= 500 or status in _AGAIN:
            return TroubleError("server_error", f"HTTP {status}: {said}")
        return refused

    async def _recover(self, trouble: TroubleError, patience: _Patience) -> None:
        """Wait before the next try, or say that there will be none."""
        waited_s = time.monotonic() - patience.since
        if trouble.kind == "rate_limited":
            hopeless = time.monotonic() - max(self._answered_at, patience.since) > RATE_LIMIT_PATIENCE_S
        else:
            patience.failures += 1
            hopeless = patience.failures > self._options.retries
        if not hopeless:
            self.retries[trouble.kind] += 1
            doubled = self._options.backoff_s * 2 ** min(patience.tries - 1, 10)
            backoff_s = min(doubled, _LONGEST_BACKOFF_S) * random.uniform(0.5, 1.5)
            # the gate holds back all requests for as long as the server asked
            await asyncio.sleep(backoff_s if trouble.pause_s is None else backoff_s / 10)
            return
        finding = f"{trouble.finding}, {patience.tries} tries in {waited_s:.0f} s"
        if self._answered_at > patience.since:
            raise GaveUpError(finding)
        raise EngineError(
            f"{self._options.address} does not answer: {finding}; run the same command again to go on once it is back"
        )


def _said(error: openai.APIStatusError) -> str:
    """The server's own words: the message of an OpenAI, FastAPI or plain body."""
    body: Any = error.body
    if isinstance(body, dict):
        found = body.get("message") or body.get("detail") or body.get("error") or body
        return found if isinstance(found, str) else json.dumps(found)
    return str(body or error.response.text or error.message)


def _pause(headers: Any) -> float | None:
    """Seconds that the server asks to be left alone for."""
    if (milliseconds := headers.get("retry-after-ms")) is not None:
        return _seconds(f"{milliseconds}ms")
    stated = (_seconds(headers.get(name)) for name in ("retry-after", "x-ratelimit-reset-requests"))
    return next((seconds for seconds in stated if seconds is not None), None)


def _seconds(text: str | None) -> float | None:
    """`2`, `1.5s`, `6m0s`, `20ms` or an HTTP date; None for anything else."""
    if not text:
        return None
    if not re.fullmatch(rf"(?:{_DURATION.pattern})+", text.strip()):
        date = parsedate_tz(text)
        return None if date is None else max(0.0, mktime_tz(date) - time.time())
    return sum(float(number) * _UNIT_S[unit] for number, unit in _DURATION.findall(text))
