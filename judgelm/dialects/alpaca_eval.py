"""AlpacaEval's annotators: rankings as Python literals or as a function's arguments, `m` or `M`, and batches.

Outputs stand raw in the prompts, so any text may be in them. How the client shuffles is its own affair: `m`
and `model_1` are the output shown first.

Source: AlpacaEval (Li et al. 2023), tatsu-lab/alpaca_eval.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, Reply, Tool
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.probabilities import likelier_answer, probability_first, verdict_logprobs
from judgelm.dialects.recognition import ambiguity_note, sample_of, task_from_split, user_text
from judgelm.dialects.text import room_for_words, scores_and_reason
from judgelm.dialects.verdicts import Render, each_reply, results_per_reply, winner_of_two
from judgelm.records import Sample

_LEAST_ROOM = 60  # tokens, for an explanation and a verdict
_MOST_IN_BATCH = 64

_QUESTION = '\n{\n    "instruction": """{question}""",\n}\n\n'
_RANKING = Pattern(
    _QUESTION
    + 'Here are the outputs of the models:\n[\n    {\n        "model": "model_1",\n        "answer": """{first}"""\n'
    '    },\n    {\n        "model": "model_2",\n        "answer": """{second}"""\n    }\n]\n\n',
    anywhere=True,
)
_OUTPUTS = (
    '{\n    {\n        "KEY": "m",\n        "output": """{first}"""\n    },\n    {\n        "KEY": "M",\n'
    '        "output": """{second}"""\n    }\n}\n\n'
)
_HEADING = (
    "## Model Outputs\n\nHere are the unordered outputs from the models. Each output is associated with a specific "
    "model, identified by a unique model identifier.\n\n"
)
_FUNCTION = Pattern(_QUESTION + _HEADING + _OUTPUTS.replace("KEY", "model"), anywhere=True)
_IDENTIFIER = Pattern(_QUESTION + _HEADING + _OUTPUTS.replace("KEY", "model_identifier"), anywhere=True)

_AVIARY = Pattern(
    "\nThe prompt is: {question}\nThe responses are: [\n{'model': model_1, 'result': {first} },\n"
    "{'model': model_2, 'result': {second} },\n]\n\nPlease rank the responses by quality",
    anywhere=True,
)
_BATCH_START = "## Annotation starts below\n"
_BATCH_END = re.compile(r"\n\n## Preferred Output for example ([0-9]{1,4})-([0-9]{1,4}):\n[^\n]*\Z")
_IDENTIFIERS = {1: "m", 2: "M"}
_MODELS = {1: "model_1", 2: "model_2"}


def _recognise(name: str, request: ChatRequest, *patterns: Pattern) -> JudgeTask | None:
    text = user_text(request)
    for pattern in patterns:
        if text is not None and (split := pattern.split(text)) is not None:
            tail = text[text.rfind(pattern.anchors[-1]) + len(pattern.anchors[-1]) :]
            return task_from_split(name, "pair", split, facts={"explanation": "explanation" in tail.lower()})
    return None


def _batch(request: ChatRequest) -> JudgeTask | None:
    """Examples with running numbers; the client's own worked examples stand before them."""
    text = user_text(request)
    ended = None if text is None else _BATCH_END.search(text)
    if text is None or ended is None:
        return None
    indices = range(int(ended[1]), int(ended[2]) + 1)
    if not 1 <= len(indices) <= _MOST_IN_BATCH:
        return None
    template = "".join(
        f"\n\n## Example {index}\n\n### Instruction {index}:\n{{q{index}}}\n\n### Output (a) for example {index}:\n"
        f"{{a{index}}}\n\n### Output (b) for example {index}:\n{{b{index}}}"
        for index in indices
    )
    _, marker, after = text[: ended.start()].partition(_BATCH_START)
    first = after.find(template[: template.index("{")])
    split = Pattern(template).split(after[first:]) if marker and first >= 0 else None
    if split is None:
        return None
    values = split.values
    samples = tuple(sample_of(values[f"q{index}"], (values[f"a{index}"], values[f"b{index}"])) for index in indices)
    turns = tuple({"question": sample.question, "answers": sample.answers, "reference": None} for sample in samples)
    return JudgeTask(
        dialect="alpaca-eval-batch",
        kind="pair",
        sample=sample_of(samples[0].question, samples[0].answers, batch=turns if len(turns) > 1 else None),
        facts={"batch": samples},
        doubt=ambiguity_note(split),
    )


def _render_call(text: Callable[[JudgeTask, ChatRequest, JudgeResult], str]) -> Render:
    """A call where a function is on offer, since the client then reads JSON alone; else texts."""

    def render(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> Reply:
        tool = _tool(request)
        if tool is None:
            return each_reply(text)(task, request, result)
        [first, *_] = results_per_reply(request, result)
        return Reply(tool=tool.name, arguments=json.dumps(_arguments(task, request, first, tool)))

    return render


def _literal(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    """The ranking as a Python literal."""
    rank = winner_of_two(task, result)
    return f"[{{'model': 'model_1', 'rank': {rank}}}, {{'model': 'model_2', 'rank': {3 - rank}}}]"


def _arguments_text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    """The function's arguments as text, which the client takes as well."""
    return json.dumps(_arguments(task, request, result, None))


def _tool(request: ChatRequest) -> Tool | None:
    fitting = [tool for tool in request.tools if "ordered_models" in _properties(tool)]
    forced = [tool for tool in fitting if tool.name == request.forced_tool]
    return next(iter(forced or fitting), None)


def _properties(tool: Tool | None) -> Any:
    properties = tool.parameters.get("properties") if tool is not None else None
    return properties if isinstance(properties, dict) else {}


def _arguments(task: JudgeTask, request: ChatRequest, result: JudgeResult, tool: Tool | None) -> dict[str, object]:
    better = winner_of_two(task, result)
    names = _MODELS if task.dialect == "alpaca-eval-ranking" else _IDENTIFIERS
    models = [names[better], names[3 - better]]
    ranks = {"ordered_models": [{"model": model, "rank": rank} for rank, model in enumerate(models, start=1)]}
    if "concise_explanation" not in _properties(tool):
        return {**ranks}
    words = scores_and_reason(result, room_for_words(request, len(json.dumps(ranks)) + 30))
    return {"concise_explanation": words, **ranks}


def render_token(task: JudgeTask, request: ChatRequest, result: JudgeResult, names: Mapping[int, str]) -> Reply:
    """One bare token; after an explanation where one is wanted, since the client then reads the last token.

    Args:
        task: its fact `explanation` says whether one is wanted.
        request: of the client.
        result: the judge's.
        names: of the first and of the second output, one letter each.
    """
    texts = []
    for drawn in results_per_reply(request, result):
        likelier = request.logprobs and request.n == 1
        better = likelier_answer(task, drawn) if likelier else winner_of_two(task, drawn)
        texts.append(_before_token(task, request, drawn, names) + names[better])
    if not request.logprobs:
        return Reply(texts=tuple(texts))
    first = probability_first(result)
    probabilities = {names[1]: first, names[2]: 1 - first}
    logprobs = verdict_logprobs(texts[0], texts[0][-1], probabilities, request.top_logprobs)
    return Reply(texts=tuple(texts), logprobs=logprobs)


def _before_token(task: JudgeTask, request: ChatRequest, result: JudgeResult, names: Mapping[int, str]) -> str:
    if not task.facts["explanation"] or (request.max_tokens is not None and request.max_tokens < _LEAST_ROOM):
        return ""
    words = scores_and_reason(result, room_for_words(request, 2))
    if re.search(rf"\b[{names[1]}{names[2]}]\b", words):
        words = scores_and_reason(replace(result, reason=None), None)
    return f"{words}\n" if words else ""


def _render_batch(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> Reply:
    """`Output (a)` or `Output (b)` for each example, by two of the scores for each.

    Raises:
        ValueError: there are not two scores for each example (of one example the winner is enough).
    """
    samples: Sequence[Sample] = task.facts["batch"]
    if len(samples) == 1:
        return render_batch(task, request, [result])
    if len(result.scores) != 2 * len(samples):
        raise ValueError(f"a batch of {len(samples)} wants {2 * len(samples)} scores, got {len(result.scores)}")
    pairs = [result.scores[start : start + 2] for start in range(0, len(result.scores), 2)]
    return render_batch(task, request, [_of_scores(first, second) for first, second in pairs])


def _of_scores(first: float, second: float) -> JudgeResult:
    return JudgeResult(winner="tie" if first == second else 1 if first > second else 2)


def render_batch(task: JudgeTask, request: ChatRequest, findings: Sequence[JudgeResult]) -> Reply:
    """The reply to a batch with a result for each of `task.facts["batch"]`, in their order."""
    samples: Sequence[Sample] = task.facts["batch"]
    lines = []
    for sample, result in zip(samples, findings, strict=True):
        better = winner_of_two(replace(task, sample=sample), result)
        lines.append("Output (a)" if better == 1 else "Output (b)")
    return Reply(texts=("\n".join(lines),) * request.n)


DIALECTS: tuple[Dialect, ...] = (
    Dialect(
        name="alpaca-eval-ranking",
        recognise=lambda request: _recognise("alpaca-eval-ranking", request, _RANKING, _AVIARY),
        render=_render_call(_literal),
        templates=(_RANKING, _AVIARY),
    ),
    Dialect(
        name="alpaca-eval-function",
        recognise=lambda request: _recognise("alpaca-eval-function", request, _FUNCTION),
        render=_render_call(_arguments_text),
        templates=(_FUNCTION,),
    ),
    Dialect(
        name="alpaca-eval-identifier",
        recognise=lambda request: _recognise("alpaca-eval-identifier", request, _IDENTIFIER),
        render=partial(render_token, names=_IDENTIFIERS),
        templates=(_IDENTIFIER,),
    ),
    Dialect(name="alpaca-eval-batch", recognise=_batch, render=_render_batch),
)
