"""Finds out at load what a server is and can: is it there, has it the model, which API, token ids, grammars."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from judgelm.engines.openai.endpoint import Api, Endpoint, RetriesExhaustedError, TransientError
from judgelm.engines.openai.options import EndpointOptions
from judgelm.engines.openai.pool import EndpointPool
from judgelm.engines.openai.response import BadReplyError
from judgelm.engines.openai.unsupported_params import RefusedError
from judgelm.errors import EngineError, ModelError

_HELLO = "Hello"
_GRAMMAR = "ZQ[0-9]{2}"  # nothing that a model would write of itself


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCapabilities:
    """What the server has.

    Attributes:
        api: where prompts go.
        takes_ids: whether /completions takes token ids.
        supports_grammar: whether it holds replies to a regular expression, as vLLM does.
        window: the model's window, where the server says it.
    """

    api: Api
    takes_ids: bool
    supports_grammar: bool
    window: int | None


async def discover_servers(
    pool: EndpointPool, model: str, options: EndpointOptions, hello: list[int] | None
) -> ServerCapabilities:
    """What all servers can; one that cannot be reached is left out for a while and taken to be like the others.

    Raises:
        EngineError, ModelError: as `discover_server`: no server can be reached, or one of them is not usable.
    """
    asked = list(zip(pool.endpoints, options.each, strict=True))
    found = await asyncio.gather(*(_discovered(one, model, own, hello) for one, own in asked))
    lost = [one for one in found if isinstance(one, EngineError)]
    if len(lost) == len(found):
        raise lost[0]
    for endpoint, one in zip(pool.endpoints, found, strict=True):
        if isinstance(one, EngineError):
            pool.leave_out(endpoint)
    served = [one for one in found if isinstance(one, ServerCapabilities)]
    if len({one.api for one in served}) > 1:  # then what they have in common
        return await discover_servers(pool, model, replace(options, api="chat"), hello)
    windows = [one.window for one in served if one.window is not None]
    return ServerCapabilities(
        api=served[0].api,
        takes_ids=all(one.takes_ids for one in served),
        supports_grammar=all(one.supports_grammar for one in served),
        window=min(windows, default=None),
    )


async def _discovered(
    endpoint: Endpoint, model: str, options: EndpointOptions, hello: list[int] | None
) -> ServerCapabilities | EngineError:
    try:
        return await discover_server(endpoint, model, options, hello)
    except EngineError as error:
        return error


async def discover_server(
    endpoint: Endpoint, model: str, options: EndpointOptions, hello: list[int] | None
) -> ServerCapabilities:
    """Ask the server, with a handful of one-token requests.

    Args:
        endpoint: the server.
        model: its name for the model.
        options: the address, and which API is wanted.
        hello: token ids of a short prompt, where the tokenizer is known.

    Raises:
        EngineError: the server cannot be reached.
        ModelError: it is no such API, does not accept the key, or does not have the model.
    """
    models = await _models(endpoint, options)
    refused: RefusedError | None = None
    takes_ids = False
    if options.api != "chat":
        takes_ids = hello is not None and await _tried(endpoint, model, "completions", hello) is None
        refused = None if takes_ids else await _tried(endpoint, model, "completions", _HELLO)
    api: Api = "completions"
    if options.api == "chat" or (refused is not None and options.api == "auto"):
        api = "chat"
        refused = await _tried(endpoint, model, "chat", [{"role": "user", "content": _HELLO}])
    if refused is not None:
        raise _unusable(refused, models, model, options)
    return ServerCapabilities(
        api=api,
        takes_ids=takes_ids,
        supports_grammar=await _holds_to_a_grammar(endpoint, model, api),
        window=models.get(model),
    )


async def _models(endpoint: Endpoint, options: EndpointOptions) -> dict[str, int | None]:
    """The models that the server lists, and their windows; empty where it lists none."""
    try:
        data = await endpoint.models()
    except TransientError as trouble:
        if trouble.kind in ("connection", "timeout"):
            raise EngineError(
                f"{options.address} cannot be reached: {trouble.finding}; is the server running, and is "
                "--engine-arg base_url=... right?"
            ) from trouble
        return {}
    except RefusedError as refused:
        if refused.status in (401, 403):
            raise ModelError(options.refused_key(refused.status)) from None
        return {}
    except BadReplyError as error:
        raise ModelError(
            f"{options.address}/models is {endpoint.words(str(error))}: no OpenAI-compatible API; "
            "its address mostly ends in /v1"
        ) from error
    listed: Any = data.get("data") if isinstance(data, Mapping) else None
    cards = [card for card in listed or () if isinstance(card, Mapping) and isinstance(card.get("id"), str)]
    windows = ((card["id"], card.get("max_model_len")) for card in cards)
    return {name: window if isinstance(window, int) else None for name, window in windows}


async def _tried(endpoint: Endpoint, model: str, api: Api, content: object) -> RefusedError | None:
    """The server's refusal of the smallest request there is, if it refuses it."""
    try:
        await endpoint.ask(api, _smallest(model, api, content))
    except RefusedError as refused:
        # a reasoning model may find one token too few, which shows that it is there
        return None if api == "chat" and refused.status == 400 and "model" not in _subject(refused) else refused
    except RetriesExhaustedError as error:
        return RefusedError(500, str(error))
    return None


async def _holds_to_a_grammar(endpoint: Endpoint, model: str, api: Api) -> bool:
    """By the reply: most servers ignore what they do not know."""
    content = _HELLO if api == "completions" else [{"role": "user", "content": _HELLO}]
    body = _smallest(model, api, content) | {"max_tokens": 8, "structured_outputs": {"regex": _GRAMMAR}}
    try:
        choices, _ = await endpoint.ask(api, body)
    except (RefusedError, RetriesExhaustedError):
        return False
    return re.fullmatch(_GRAMMAR, (choices[0].text or "").strip()) is not None


def _smallest(model: str, api: Api, content: object) -> dict[str, Any]:
    return {
        "model": model,
        "prompt" if api == "completions" else "messages": content,
        "max_tokens": 1,
        "temperature": 0.0,
    }


def _subject(refused: RefusedError) -> str:
    """What a refusal is about, as far as a code or parameter says it."""
    return f"{refused.code} {refused.param}" if refused.code or refused.param else refused.message


def _unusable(refused: RefusedError, models: Mapping[str, Any], model: str, options: EndpointOptions) -> ModelError:
    if refused.status in (401, 403):
        return ModelError(options.refused_key(refused.status))
    if models and model not in models:
        some = ", ".join(sorted(models)[:20])
        return ModelError(f"{options.address} has no model {model!r}; it has: {some}")
    way_out = "; try --engine-arg api=auto" if options.api != "auto" else ""
    if refused.status in (404, 405) and not models:
        way_out += "; is this an OpenAI-compatible API? its address mostly ends in /v1"
    return ModelError(f"{options.address} does not serve {model!r} ({refused}){way_out}")
