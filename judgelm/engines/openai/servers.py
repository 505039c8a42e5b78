"""Several servers that hold the same model, used as one; or a single server.

A request goes to the server with the fewest requests in flight. A server that does not answer is left out for a while,
and its requests go to the others; then a single request tests whether it is back.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from judgelm.engines.openai.endpoint import (
    MAX_BACKOFF_S,
    BadReplyError,
    Endpoint,
    ErrorKind,
    PatienceError,
    Replies,
    RetriesExhaustedError,
    TransientError,
)
from judgelm.engines.openai.options import Api, CostTracker, EndpointOptions
from judgelm.engines.openai.requests import SYSTEM_MESSAGE, RefusedError
from judgelm.errors import EngineError, ModelError
from judgelm.prompts.truncation import FOLDED_SYSTEM

_DOWN_S = 2.0
_MAX_DOWN_S = 60.0
HELLO = "Hello"
_GRAMMAR = "ZQ[0-9]{2}"  # no model would write this by itself


@dataclass(eq=False, slots=True)
class _Member:
    """One server.

    Attributes:
        failures: how often in a row it was left out.
        down_until: time before which it gets no request while another server can.
    """

    endpoint: Endpoint
    in_flight: int = 0
    failures: int = 0
    down_until: float = 0.0

    def is_available(self, now: float) -> bool:
        """True if it may get a request: it works, or no other request tests whether it is back."""
        return self.failures == 0 or (now >= self.down_until and self.in_flight == 0)

    def mark_down(self) -> None:
        """Leave it out for a while; all its failed requests together count once."""
        now = time.monotonic()
        if now >= self.down_until:
            self.failures += 1
            self.down_until = now + min(_DOWN_S * 2 ** min(self.failures - 1, 10), _MAX_DOWN_S)


class EndpointPool:
    """Sends each request to one of the servers. Lives in one event loop.

    Args:
        options: of all servers; `base_url` holds their addresses.
        max_concurrency: maximum requests in flight at each server.

    Attributes:
        cost: of all servers together.
    """

    def __init__(self, options: EndpointOptions, max_concurrency: int) -> None:
        self._options = options
        self.cost = CostTracker(options)
        self._members = [_Member(Endpoint(server, max_concurrency, self.cost)) for server in options.servers]
        self._rerouted = 0

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """The servers, in the order of their addresses."""
        return [member.endpoint for member in self._members]

    @property
    def max_concurrency(self) -> int:
        """Maximum requests in flight at all servers."""
        return sum(endpoint.limiter.max_limit for endpoint in self.endpoints)

    @property
    def unsupported_params(self) -> frozenset[str]:
        """Parameters that a server does not support."""
        return frozenset().union(*(endpoint.unsupported_params for endpoint in self.endpoints))

    def stats(self) -> dict[str, Any]:
        """Requests, retries, concurrency and cost, as `Engine.stats` states them."""
        retries: Counter[ErrorKind] = sum((endpoint.retries for endpoint in self.endpoints), Counter())
        rerouted = {"moved_to_another_server": self._rerouted} if len(self._members) > 1 else {}
        return {
            "requests": sum(endpoint.requests for endpoint in self.endpoints),
            "retries": dict(retries),
            "concurrency": sum(endpoint.limiter.limit for endpoint in self.endpoints),
            "not_taken_by_server": sorted(self.unsupported_params),
            **({"notes": [FOLDED_SYSTEM]} if SYSTEM_MESSAGE in self.unsupported_params else {}),
            **rerouted,
            **self.cost.stats(),
        }

    def mark_down(self, index: int) -> None:
        """Leave out a server that did not answer during discovery."""
        self._members[index].mark_down()

    async def complete(self, api: Api, body: dict[str, Any]) -> Replies:
        """As `Endpoint.complete`; a server's failure is an error only where no other server answers.

        Raises:
            RefusedError: a server refuses the request; where the reason is the server itself, all of them do.
            RetriesExhaustedError: it failed too often, while others were answered.
            OverBudgetError: it may cost more than is left.
            EngineError: no server answers at all.
        """
        if len(self._members) == 1:
            return await self._members[0].endpoint.complete(api, body)
        for attempt in range(self._options.retries + 1):
            if attempt:
                await asyncio.sleep(min(self._options.backoff_s * 2 ** (attempt - 1), MAX_BACKOFF_S))
            tried: list[_Member] = []
            error: Exception | None = None
            limited = True
            while (member := self._next(tried)) is not None:
                self._rerouted += bool(tried)
                tried.append(member)
                try:
                    return await self._complete_at(member, api, body)
                except (EngineError, RetriesExhaustedError) as failure:
                    error = failure
                    limited &= isinstance(failure, PatienceError)
                except RefusedError as refused:
                    if not refused.fatal:
                        raise
                    error, limited = refused, False
            if limited:
                break
        assert error is not None, "each attempt tries at least one server"
        if isinstance(error, EngineError):
            raise EngineError(f"none of {len(self._members)} servers answers; the last one: {error}") from error
        raise error

    async def close(self) -> None:
        """Drop the connections."""
        await asyncio.gather(*(endpoint.close() for endpoint in self.endpoints))

    def _next(self, tried: Sequence[_Member]) -> _Member | None:
        """The available server with the fewest requests in flight; if none is available, the first one due."""
        now = time.monotonic()
        left = [member for member in self._members if member not in tried]
        available = [member for member in left if member.is_available(now)]
        if available:
            return min(available, key=lambda member: member.in_flight)
        return min(left, key=lambda member: member.down_until, default=None)

    async def _complete_at(self, member: _Member, api: Api, body: dict[str, Any]) -> Replies:
        """Try one server once; it is left out where it does not answer."""
        member.in_flight += 1
        try:
            answer = await member.endpoint.complete(api, body, retries=0)
        except EngineError:
            member.mark_down()
            raise
        except RefusedError as refused:
            if refused.fatal:
                member.mark_down()
            raise
        finally:
            member.in_flight -= 1
        member.failures = 0
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCapabilities:
    """Features that the server supports.

    Attributes:
        api: the API that takes the prompts.
        accepts_token_ids: whether /completions accepts token ids.
        supports_grammar: whether it constrains replies to a regular expression, as vLLM does.
        window: the model's context window, where the server states it.
    """

    api: Api
    accepts_token_ids: bool
    supports_grammar: bool
    window: int | None


async def discover_servers(
    pool: EndpointPool, model: str, options: EndpointOptions, hello: list[int] | None
) -> ServerCapabilities:
    """The common capabilities of all servers; one that cannot be reached is left out for a while.

    Raises:
        EngineError, ModelError: as `discover_server`: no server can be reached, or one of them is not usable.
    """
    discoveries = (
        discover_server(endpoint, model, own, hello)
        for endpoint, own in zip(pool.endpoints, options.servers, strict=True)
    )
    results = await asyncio.gather(*discoveries, return_exceptions=True)
    for index, result in enumerate(results):
        if isinstance(result, EngineError):
            pool.mark_down(index)
        elif isinstance(result, BaseException):
            raise result
    reached = [result for result in results if isinstance(result, ServerCapabilities)]
    if not reached and isinstance(results[0], EngineError):
        raise results[0]
    if len({server.api for server in reached}) > 1:  # all of them have chat
        return await discover_servers(pool, model, replace(options, api="chat"), hello)
    windows = [server.window for server in reached if server.window is not None]
    return ServerCapabilities(
        api=reached[0].api,
        accepts_token_ids=all(server.accepts_token_ids for server in reached),
        supports_grammar=all(server.supports_grammar for server in reached),
        window=min(windows, default=None),
    )


async def discover_server(
    endpoint: Endpoint, model: str, options: EndpointOptions, hello: list[int] | None
) -> ServerCapabilities:
    """Test the server with a few one-token requests.

    Args:
        endpoint: the server.
        model: its name for the model.
        options: the address, and the API that the user wants.
        hello: token ids of a short prompt, where the tokenizer is known.

    Raises:
        EngineError: the server cannot be reached.
        ModelError: it has another API, rejects the key, or does not have the model.
    """
    models = await _models(endpoint, options)
    refused: RefusedError | None = None
    accepts_token_ids = False
    if options.api != "chat":
        accepts_token_ids = hello is not None and await _refusal(endpoint, model, "completions", hello) is None
        refused = None if accepts_token_ids else await _refusal(endpoint, model, "completions", HELLO)
    api: Api = "completions"
    if options.api == "chat" or (refused is not None and options.api == "auto"):
        api = "chat"
        refused = await _refusal(endpoint, model, "chat", [{"role": "user", "content": HELLO}])
    if refused is not None:
        raise _unusable(refused, models, model, options)
    return ServerCapabilities(
        api=api,
        accepts_token_ids=accepts_token_ids,
        supports_grammar=await _supports_grammar(endpoint, model, api),
        window=models.get(model),
    )


async def _models(endpoint: Endpoint, options: EndpointOptions) -> dict[str, int | None]:
    """The models that the server lists, with their windows; empty where it lists none."""
    try:
        data = await endpoint.models()
    except TransientError as error:
        if error.kind in ("connection", "timeout"):
            raise EngineError(
                f"{options.address} cannot be reached: {error.message}; is the server running, and is "
                "--engine-arg base_url=... right?"
            ) from error
        return {}
    except RefusedError as refused:
        if refused.status in (401, 403):
            raise ModelError(options.rejected_key(refused.status)) from None
        return {}
    except BadReplyError as error:
        raise ModelError(
            f"{options.address}/models is {endpoint.redact(str(error))}: not an OpenAI-compatible API; "
            "its address usually ends in /v1"
        ) from error
    listed: Any = data.get("data") if isinstance(data, Mapping) else None
    cards = [card for card in listed or () if isinstance(card, Mapping) and isinstance(card.get("id"), str)]
    windows = ((card["id"], card.get("max_model_len")) for card in cards)
    return {name: window if isinstance(window, int) else None for name, window in windows}


async def _refusal(endpoint: Endpoint, model: str, api: Api, content: object) -> RefusedError | None:
    """The server's refusal of the smallest possible request, if it refuses it."""
    try:
        await endpoint.complete(api, _smallest(model, api, content))
    except RefusedError as refused:
        # a reasoning model may refuse a single token, which shows that the model exists
        subject = f"{refused.code} {refused.param}".strip() or refused.message
        return None if api == "chat" and refused.status == 400 and "model" not in subject else refused
    except RetriesExhaustedError as error:
        return RefusedError(500, str(error))
    return None


async def _supports_grammar(endpoint: Endpoint, model: str, api: Api) -> bool:
    """Test by the reply, since most servers ignore unknown parameters."""
    content = HELLO if api == "completions" else [{"role": "user", "content": HELLO}]
    body = _smallest(model, api, content) | {"max_tokens": 8, "structured_outputs": {"regex": _GRAMMAR}}
    try:
        answer = await endpoint.complete(api, body)
    except (RefusedError, RetriesExhaustedError):
        return False
    return re.fullmatch(_GRAMMAR, (answer.choices[0].text or "").strip()) is not None


def _smallest(model: str, api: Api, content: object) -> dict[str, Any]:
    return {
        "model": model,
        "prompt" if api == "completions" else "messages": content,
        "max_tokens": 1,
        "temperature": 0.0,
    }


def _unusable(refused: RefusedError, models: Mapping[str, Any], model: str, options: EndpointOptions) -> ModelError:
    if refused.status in (401, 403):
        return ModelError(options.rejected_key(refused.status))
    if models and model not in models:
        some = ", ".join(sorted(models)[:20])
        return ModelError(f"{options.address} has no model {model!r}; available: {some}")
    way_out = "; try --engine-arg api=auto" if options.api != "auto" else ""
    if refused.status in (404, 405) and not models:
        way_out += "; is this an OpenAI-compatible API? its address usually ends in /v1"
    return ModelError(f"{options.address} does not serve {model!r} ({refused}){way_out}")
