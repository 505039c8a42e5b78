"""Bodies of replies and of judgelm's own requests, for `/openapi.json`.

Bodies are read more leniently, since clients send odd ones: unknown fields and nulls are accepted everywhere.
"""

from typing import Any, Literal

from pydantic import BaseModel, Field

Schema = dict[str, Any]


class Error(BaseModel):
    """An error in OpenAI's form."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The body of a reply that is an error."""

    error: Error


class Usage(BaseModel):
    """Token counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class AssistantMessage(BaseModel):
    """A message of the judge."""

    role: Literal["assistant"]
    content: str | None
    reasoning_content: str = ""


class ChatChoice(BaseModel):
    """One of the replies to a chat."""

    index: int
    message: AssistantMessage
    finish_reason: str


class TextChoice(BaseModel):
    """One of the replies to a plain prompt."""

    index: int
    text: str
    finish_reason: str


class _Completion(BaseModel):
    id: str
    created: int
    model: str
    system_fingerprint: str
    usage: Usage


class ChatCompletion(_Completion):
    """The reply to a chat."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class TextCompletion(_Completion):
    """The reply to a plain prompt."""

    object: Literal["text_completion"]
    choices: list[TextChoice]


class Event(BaseModel):
    """A server-sent event of a streamed reply."""

    data: str


class JudgeCard(BaseModel):
    """The prompting of a judge; `base` is the name of the judge whose model an adapter shares."""

    template: str
    reading: str
    scale: list[float]
    step: float
    mode: str
    base: str = ""


class Model(BaseModel):
    """A judge as OpenAI's clients see models."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    judge: JudgeCard | None = None


class Models(BaseModel):
    """All judges of the server."""

    object: Literal["list"]
    data: list[Model]


class SampleBody(BaseModel):
    """A sample with the fields of any row that judgelm-batch reads."""

    question: str
    id: str = ""
    answer: str = ""
    answer_1: str = ""
    answer_2: str = ""
    answers: list[str] = []
    reference: str | None = None


class JudgeBody(SampleBody):
    """A sample with the fields of any row that judgelm-batch reads, or several of them under `samples`."""

    question: str = ""
    judge: str = Field("", description="Name of one of the server's judges, as at /v1/models; default the first.")
    mode: str = Field("pair", description="As `judgelm modes` lists them.")
    options: Schema = Field({}, description="The mode's options, as `judgelm modes NAME` lists them.")
    both_orders: bool = False
    distribution: bool = False
    reasons: Literal["none", "all", "close", "flips"] = "none"
    samples: list[SampleBody] = []


class Verdict(BaseModel):
    """A verdict; its other fields depend on its kind."""

    kind: str


class Failure(BaseModel):
    """The reason why a judgment has no verdict."""

    code: str
    text: str
    why: str


class JudgmentBody(BaseModel):
    """A judgment as in a run file."""

    id: str
    mode: str
    verdict: Verdict | None
    scores: list[float] | None
    failure: Failure | None
    shown: list[Schema]
    probability: float | None = None


class Judgments(BaseModel):
    """Judgments of several samples, in their order."""

    judgments: list[JudgmentBody]


class TaskBody(BaseModel):
    """The task in a client's request."""

    task: str
    question: str
    answers: list[str]
    reference: str | None
    doubt: str


class ExplanationBody(BaseModel):
    """How a client's request is read, and the judge's result."""

    dialect: str | None
    case: TaskBody | None
    questions: list[Schema]
    prompts: list[Schema]
    finding: Schema | None


class UnloadBody(BaseModel):
    """The adapter to unload."""

    lora_name: str


class LoadBody(UnloadBody):
    """The adapter to load, from the server's folder of adapters."""

    lora_path: str


class Loaded(BaseModel):
    """What became of an adapter."""

    id: str
    object: Literal["model"]
    loaded: bool


class Status(BaseModel):
    """Health of the server."""

    status: str


def request_body(*models: type[BaseModel]) -> Schema:
    """`openapi_extra` of a route that reads its body itself, within limits: one of these models."""
    schemas = [_inlined(schema := model.model_json_schema(), schema.get("$defs", {})) for model in models]
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _inlined(node: Any, definitions: Schema) -> Any:
    """A schema with its definitions in the places that refer to them."""
    if isinstance(node, list):
        return [_inlined(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inlined(definitions[node["$ref"].rpartition("/")[2]], definitions)
    return {name: _inlined(value, definitions) for name, value in node.items() if name != "$defs"}
