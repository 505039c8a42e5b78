"""Descriptions of the routes for `/openapi.json`.

Bodies are read more leniently, since clients send odd ones: unknown fields and nulls are accepted everywhere.
"""

from typing import Any

from judgelm.records import MAX_TOKENS

Words = dict[str, Any]


def _object(required: tuple[str, ...] = (), **fields: Words) -> Words:
    return {"type": "object", "properties": fields, "required": list(required), "additionalProperties": True}


def _list(items: Words, least: int = 0) -> Words:
    return {"type": "array", "items": items, "minItems": least}


def _maybe(words: Words) -> Words:
    return {"anyOf": [words, {"type": "null"}]}


def _reply(words: Words, meaning: str = "The reply.", **others: Words) -> Words:
    return {"description": meaning, "content": {"application/json": {"schema": words}, **others}}


def _route(
    summary: str, reply: Words, body: Words | None = None, *, named: bool = False, query: Words | None = None
) -> Words:
    """A route's summary, body, parameters and replies, the errors included."""
    responses = {"200": reply, "default": _reply(_ERROR, "An error.")}
    words: Words = {"summary": summary, "responses": responses}
    if body is not None:
        words["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    parameters = [query] if query else []
    if named:
        parameters.append({"name": "model", "in": "path", "required": True, "schema": {"type": "string"}})
    return words | {"parameters": parameters} if parameters else words


_TEXT: Words = {"type": "string"}
_COUNT: Words = {"type": "integer", "minimum": 0}
_NUMBER: Words = {"type": "number"}
_FLAG: Words = {"type": "boolean"}

_ERROR = _object(
    ("error",),
    error=_object(
        ("message", "type", "param", "code"), message=_TEXT, type=_TEXT, param=_maybe(_TEXT), code=_maybe(_TEXT)
    ),
)
_USAGE = _object(
    ("prompt_tokens", "completion_tokens", "total_tokens"),
    prompt_tokens=_COUNT,
    completion_tokens=_COUNT,
    total_tokens=_COUNT,
)
_PART = _object(("type", "text"), type={"const": "text"}, text=_TEXT)
_MESSAGE = _object(("role",), role=_TEXT, content=_maybe({"anyOf": [_TEXT, _list(_PART)]}))
_FUNCTION = _object(("name",), name=_TEXT, parameters=_object())
_TOOL = _object(("type", "function"), type={"const": "function"}, function=_FUNCTION)
_REPLIES: Words = {"type": "integer", "minimum": 1, "maximum": 128}
_COMMON: Words = {
    "model": _maybe(_TEXT | {"description": "Without it the judge's own name."}),
    "n": _maybe(_REPLIES),
    "max_tokens": _maybe({"type": "integer", "minimum": 1, "maximum": MAX_TOKENS}),
    "temperature": _maybe({"type": "number", "minimum": 0, "maximum": 2}),
    "top_p": _maybe({"type": "number", "minimum": 0, "maximum": 1}),
    "presence_penalty": _maybe({"type": "number", "minimum": -2, "maximum": 2}),
    "frequency_penalty": _maybe({"type": "number", "minimum": -2, "maximum": 2}),
    "logit_bias": _maybe({"type": "object"}),
    "stream": _maybe(_FLAG),
    "stream_options": _maybe(_object(include_usage=_FLAG)),
}
_CHAT_BODY = _object(
    ("messages",),
    **_COMMON,
    messages=_list(_MESSAGE, 1),
    logprobs=_maybe(_FLAG),
    top_logprobs=_maybe({"type": "integer", "minimum": 0, "maximum": 20}),
    tools=_maybe(_list(_TOOL)),
    response_format=_maybe(_object(("type",), type={"enum": ["text", "json_object", "json_schema"]})),
)
_PLAIN_BODY = _object(
    ("prompt",),
    **_COMMON,
    prompt={"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 1}]},
    logprobs=_maybe({"type": "integer", "minimum": 0, "maximum": 20}),
)


def _completion(kind: str, choice: Words) -> Words:
    return _object(
        ("id", "object", "created", "model", "system_fingerprint", "choices", "usage"),
        id=_TEXT,
        object={"const": kind},
        created=_COUNT,
        model=_TEXT,
        system_fingerprint=_TEXT,
        choices=_list(choice, 1),
        usage=_USAGE,
    )


_CHAT_REPLY = _completion(
    "chat.completion",
    _object(
        ("index", "message", "finish_reason"),
        index=_COUNT,
        message=_object(
            ("role", "content"), role={"const": "assistant"}, content=_maybe(_TEXT), reasoning_content=_TEXT
        ),
        finish_reason=_TEXT,
    ),
)
_PLAIN_REPLY = _completion(
    "text_completion",
    _object(("index", "text", "finish_reason"), index=_COUNT, text=_TEXT, finish_reason=_TEXT),
)
_EVENTS: Words = {"text/event-stream": {"schema": _object(("data",), data=_TEXT)}}
_ONE_MODEL = _object(
    ("id", "object", "created", "owned_by"), id=_TEXT, object={"const": "model"}, created=_COUNT, owned_by=_TEXT
)
_JUDGE_CARD = _object(
    ("template", "scale", "step", "mode"), template=_TEXT, scale=_list(_NUMBER, 2), step=_NUMBER, mode=_TEXT, base=_TEXT
)
_ONE_MODEL["properties"]["judge"] = _JUDGE_CARD
_LOADED = _object(("id", "object", "loaded"), id=_TEXT, object={"const": "model"}, loaded=_FLAG)
_SAMPLE = _object(
    ("question",),
    id=_TEXT,
    question=_TEXT,
    answer=_TEXT,
    answer_1=_TEXT,
    answer_2=_TEXT,
    answers=_list(_TEXT),
    reference=_maybe(_TEXT),
)
_JUDGE_BODY: Words = {
    "description": "A sample with the fields of any row that judgelm-batch reads, or several of them under `samples`.",
    **_object(
        judge=_TEXT | {"description": "Name of one of the server's judges, as at /v1/models; default the first."},
        mode=_TEXT | {"description": "As `judgelm modes` lists them; default `pair`."},
        options=_object() | {"description": "The mode's options, as `judgelm modes NAME` lists them."},
        both_orders=_FLAG,
        distribution=_FLAG,
        reasons={"enum": ["none", "all", "close", "flips"]},
        samples=_list(_SAMPLE, 1),
        **_SAMPLE["properties"],
    ),
}
_FAILURE = _object(("code", "text", "why"), code=_TEXT, text=_TEXT, why=_TEXT)
_JUDGMENT = _object(
    ("id", "mode", "verdict", "scores", "failure", "shown"),
    id=_TEXT,
    mode=_TEXT,
    verdict=_maybe(_object(("kind",), kind=_TEXT)),
    scores=_maybe(_list(_NUMBER)),
    probability=_maybe(_NUMBER),
    failure=_maybe(_FAILURE),
    shown=_list(_object()),
)
_EXPLAINED = _object(
    ("dialect", "case", "questions", "prompts", "finding"),
    dialect=_maybe(_TEXT),
    case=_maybe(_object(("task", "question", "answers", "reference", "doubt"), task=_TEXT, question=_TEXT,
                        answers=_list(_TEXT), reference=_maybe(_TEXT), doubt=_TEXT)),
    questions=_list(_object()),
    prompts=_list(_object()),
    finding=_maybe(_object()),
)  # fmt: skip

CHAT = _route("Judge what a chat asks to be judged", _reply(_CHAT_REPLY, **_EVENTS), _CHAT_BODY)
NAMED_CHAT = _route(
    "As /v1/chat/completions, the model in the path", _reply(_CHAT_REPLY, **_EVENTS), _CHAT_BODY, named=True
)
PLAIN = _route("Judge what a plain prompt asks to be judged", _reply(_PLAIN_REPLY, **_EVENTS), _PLAIN_BODY)
MODELS = _route(
    "List the models", _reply(_object(("object", "data"), object={"const": "list"}, data=_list(_ONE_MODEL)))
)
MODEL = _route("One model", _reply(_ONE_MODEL), named=True)
JUDGE = _route(
    "Judge a sample, or several",
    _reply({"anyOf": [_JUDGMENT, _object(("judgments",), judgments=_list(_JUDGMENT))]}, "As in a run file."),
    _JUDGE_BODY,
)
EXPLAIN = _route(
    "Explain how a request of /v1/chat/completions or /v1/completions is read, and judge it",
    _reply(_EXPLAINED),
    {"anyOf": [_CHAT_BODY, _PLAIN_BODY]},
    query={
        "name": "ask",
        "in": "query",
        "description": "false does not judge and leaves the finding out.",
        "schema": {"type": "boolean", "default": True},
    },
)
LOAD_ADAPTER = _route(
    "Load a LoRA adapter as a judge, from the server's folder of adapters",
    _reply(_LOADED),
    _object(("lora_name", "lora_path"), lora_name=_TEXT, lora_path=_TEXT),
)
UNLOAD_ADAPTER = _route(
    "Unload a judge that is an adapter, when its requests in flight are answered",
    _reply(_LOADED),
    _object(("lora_name",), lora_name=_TEXT),
)
LIVE = _route("Whether the server works, also while it shuts down", _reply(_object(("status",), status=_TEXT)))
READY = _route("Whether the server takes requests", _reply(_object(("status",), status=_TEXT)))
METRICS = _route(
    "Counters in Prometheus' text format",
    {"description": "The counters.", "content": {"text/plain": {"schema": _TEXT}}},
)
