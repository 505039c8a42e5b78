"""Discover server capabilities."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from judgelm.engines.openai.endpoint import Endpoint, RetriesExhaustedError, TransientError
from judgelm.engines.openai.options import Api, EndpointOptions
from judgelm.engines.openai.pool import EndpointPool
from judgelm.engines.openai.requests import RefusedError
from judgelm.engines.openai.responses import BadReplyError
from judgelm.errors import EngineError, ModelError

HELLO = "Hello"
_GRAMMAR = "ZQ[0-9]{2}"  # replies are unlikely to match without a grammar


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCapabilities:
    """The features that a server supports."""

    api: Api
    accepts_token_ids: bool
    supports_grammar: bool
    window: int | None


async def discover_servers(
    pool: EndpointPool, model: str, options: EndpointOptions, hello: list[int] | None
) -> ServerCapabilities:
    """Return the capabilities shared by all reachable servers."""
    servers = zip(pool.endpoints, options.servers, strict=True)
    discoveries = (discover_server(endpoint, model, own, hello) for endpoint, own in servers)
    results = await asyncio.gather(*discoveries, return_exceptions=True)
    for index, result in enumerate(results):
        if isinstance(result, EngineError):
            pool.mark_down(index)
        elif isinstance(result, BaseException):
            raise result
    reached = [result for result in results if isinstance(result, ServerCapabilities)]
    if not reached and isinstance(results[0], EngineError):
        raise results[0]
    if len({server.api for server in reached}) > 1:  # all servers support chat
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
    """Probe a server with a few short requests."""
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
    try:
        data = await endpoint.models()
    except TransientError as error:
        if error.kind in ("connection", "timeout"):
            way_out = "check that the server is running and --engine-arg base_url=... is correct"
            raise EngineError(f"{options.address} is unreachable: {error.message}; {way_out}") from error
        return {}
    except RefusedError as refused:
        if refused.status in (401, 403):
            raise ModelError(options.rejected_key(refused.status)) from None
        return {}
    except BadReplyError as error:
        finding = f"{options.address}/models: {endpoint.redact(str(error))}"
        raise ModelError(f"{finding}; use an OpenAI-compatible API, whose address usually ends in /v1") from error
    listed: Any = data.get("data") if isinstance(data, Mapping) else None
    cards = [card for card in listed or () if isinstance(card, Mapping) and isinstance(card.get("id"), str)]
    windows = ((card["id"], card.get("max_model_len")) for card in cards)
    return {name: window if isinstance(window, int) else None for name, window in windows}


async def _refusal(endpoint: Endpoint, model: str, api: Api, content: object) -> RefusedError | None:
    try:
        await endpoint.complete(api, _smallest(model, api, content))
    except RefusedError as refused:
        # a reasoning model may reject a limit of one token, which shows that the model exists
        subject = f"{refused.code} {refused.param}".strip() or refused.message
        return None if api == "chat" and refused.status == 400 and "model" not in subject else refused
    except RetriesExhaustedError as error:
        return RefusedError(500, str(error))
    return None


async def _supports_grammar(endpoint: Endpoint, model: str, api: Api) -> bool:
    """Check the reply, because most servers ignore unknown parameters."""
    content = HELLO if api == "completions" else [{"role": "user", "content": HELLO}]
    body = _smallest(model, api, content) | {"max_tokens": 8, "structured_outputs": {"regex": _GRAMMAR}}
    try:
        answer = await endpoint.complete(api, body)
    except (RefusedError, RetriesExhaustedError):
        return False
    return re.fullmatch(_GRAMMAR, (answer.choices[0].text or "").strip()) is not None


def _smallest(model: str, api: Api, content: object) -> dict[str, Any]:
    prompt = "prompt" if api == "completions" else "messages"
    return {"model": model, prompt: content, "max_tokens": 1, "temperature": 0.0}


def _unusable(refused: RefusedError, models: Mapping[str, Any], model: str, options: EndpointOptions) -> ModelError:
    if refused.status in (401, 403):
        return ModelError(options.rejected_key(refused.status))
    if models and model not in models:
        some = ", ".join(sorted(models)[:20])
        return ModelError(f"{options.address} has no model {model!r}; available: {some}")
    way_out = "; try --engine-arg api=auto" if options.api != "auto" else ""
    if refused.status in (404, 405) and not models:
        way_out += "; use an OpenAI-compatible API, whose address usually ends in /v1"
    return ModelError(f"{options.address} does not serve {model!r} ({refused}){way_out}")
