"""AlpacaEval's annotators: rankings as Python literals or as a function's arguments, `m` or `M`, and batches.

Outputs stand raw in the prompts, so any text may be in them. How the client shuffles is its own affair: `m`
and `model_1` are the output shown first.

Source: AlpacaEval (Li et al. 2023), tatsu-lab/alpaca_eval.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, Reply, Tool
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.probabilities import likelier_answer, probability_first, verdict_logprobs
from judgelm.dialects.recognition import ambiguity_note, sample_of, user_text
from judgelm.dialects.text import results_per_reply, scores_and_reason, winner_of_two
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


def _of_pattern(name: str, pattern: Pattern, asked: ChatRequest) -> JudgeTask | None:
    text = user_text(asked)
    found = None if text is None else pattern.split(text)
    if text is None or found is None:
        return None
    values = found.values
    tail = text[text.rfind(pattern.anchors[-1]) + len(pattern.anchors[-1]) :]
    return JudgeTask(
        dialect=name,
        task="pair",
        sample=sample_of(values["question"], (values["first"], values["second"])),
        facts={"explanation": "explanation" in tail.lower()},
        doubt=ambiguity_note(found),
    )


def _ranking(asked: ChatRequest) -> JudgeTask | None:
    return _of_pattern("alpaca-eval-ranking", _RANKING, asked) or _of_pattern("alpaca-eval-ranking", _AVIARY, asked)


def _function(asked: ChatRequest) -> JudgeTask | None:
    return _of_pattern("alpaca-eval-function", _FUNCTION, asked)


def _identifier(asked: ChatRequest) -> JudgeTask | None:
    return _of_pattern("alpaca-eval-identifier", _IDENTIFIER, asked)


def _batch(asked: ChatRequest) -> JudgeTask | None:
    """Examples with running numbers; the client's own worked examples stand before them."""
    text = user_text(asked)
    ended = None if text is None else _BATCH_END.search(text)
    if text is None or ended is None:
        return None
    numbers = range(int(ended[1]), int(ended[2]) + 1)
    if not 1 <= len(numbers) <= _MOST_IN_BATCH:
        return None
    template = "".join(
        f"\n\n## Example {number}\n\n### Instruction {number}:\n{{q{number}}}\n\n### Output (a) for example {number}:\n"
        f"{{a{number}}}\n\n### Output (b) for example {number}:\n{{b{number}}}"
        for number in numbers
    )
    _, marker, after = text[: ended.start()].partition(_BATCH_START)
    first = after.find(template[: template.index("{")])
    found = Pattern(template).split(after[first:]) if marker and first >= 0 else None
    if found is None:
        return None
    values = found.values
    samples = tuple(sample_of(values[f"q{number}"], (values[f"a{number}"], values[f"b{number}"])) for number in numbers)
    turns = tuple({"question": one.question, "answers": one.answers, "reference": None} for one in samples)
    return JudgeTask(
        dialect="alpaca-eval-batch",
        task="pair",
        sample=sample_of(samples[0].question, samples[0].answers, batch=turns if len(turns) > 1 else None),
        facts={"batch": samples},
        doubt=ambiguity_note(found),
    )


def _render_ranking(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    """A Python literal; a call where a function is on offer, since the client then reads JSON alone."""
    tool = _tool(asked)
    if tool is not None:
        return _called(case, asked, finding, tool)
    texts = []
    for one in results_per_reply(asked, finding):
        first = winner_of_two(case, one)
        texts.append(f"[{{'model': 'model_1', 'rank': {first}}}, {{'model': 'model_2', 'rank': {3 - first}}}]")
    return Reply(texts=tuple(texts))


def _render_function(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    """A call where a function is on offer, else its arguments as text, which the client takes as well."""
    tool = _tool(asked)
    if tool is not None:
        return _called(case, asked, finding, tool)
    return Reply(
        texts=tuple([json.dumps(_arguments(case, asked, one, None)) for one in results_per_reply(asked, finding)])
    )


def _called(case: JudgeTask, asked: ChatRequest, finding: JudgeResult, tool: Tool) -> Reply:
    [first, *_] = results_per_reply(asked, finding)
    return Reply(tool=tool.name, arguments=json.dumps(_arguments(case, asked, first, tool)))


def _tool(asked: ChatRequest) -> Tool | None:
    fitting = [one for one in asked.tools if "ordered_models" in _properties(one)]
    forced = [one for one in fitting if one.name == asked.forced_tool]
    return next(iter(forced or fitting), None)


def _properties(tool: Tool | None) -> Any:
    found = tool.parameters.get("properties") if tool is not None else None
    return found if isinstance(found, dict) else {}


def _arguments(case: JudgeTask, asked: ChatRequest, finding: JudgeResult, tool: Tool | None) -> dict[str, object]:
    better = winner_of_two(case, finding)
    names = _MODELS if case.dialect == "alpaca-eval-ranking" else _IDENTIFIERS
    models = [names[better], names[3 - better]]
    ranks = {"ordered_models": [{"model": model, "rank": place} for place, model in enumerate(models, start=1)]}
    if "concise_explanation" not in _properties(tool):
        return {**ranks}
    room = None if asked.max_tokens is None else asked.max_tokens - len(json.dumps(ranks)) - 30
    return {"concise_explanation": scores_and_reason(finding, None if room is None else max(0, room)), **ranks}


def _render_identifier(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    return render_token(case, asked, finding, _IDENTIFIERS)


def render_token(case: JudgeTask, asked: ChatRequest, finding: JudgeResult, names: Mapping[int, str]) -> Reply:
    """One bare token; after an explanation where one is wanted, since the client then reads the last token.

    Args:
        case: its `explanation` says whether one is wanted.
        asked: the request.
        finding: what the judge says.
        names: of the first and of the second output, one letter each.
    """
    chance = probability_first(finding)
    texts = []
    for one in results_per_reply(asked, finding):
        better = likelier_answer(case, one) if asked.logprobs and asked.n == 1 else winner_of_two(case, one)
        texts.append(_before_token(case, asked, one, names) + names[better])
    if not asked.logprobs:
        return Reply(texts=tuple(texts))
    chances = {names[1]: chance, names[2]: 1 - chance}
    return Reply(texts=tuple(texts), logprobs=verdict_logprobs(texts[0], texts[0][-1], chances, asked.top_logprobs))


def _before_token(case: JudgeTask, asked: ChatRequest, finding: JudgeResult, names: Mapping[int, str]) -> str:
    if not case.facts["explanation"] or (asked.max_tokens is not None and asked.max_tokens < _LEAST_ROOM):
        return ""
    words = scores_and_reason(finding, None if asked.max_tokens is None else asked.max_tokens - 2)
    if re.search(rf"\b[{names[1]}{names[2]}]\b", words):
        words = scores_and_reason(replace(finding, reason=None), None)
    return f"{words}\n" if words else ""


def _render_batch(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    """`Output (a)` or `Output (b)` for each example, by two of the finding's scores for each.

    Raises:
        ValueError: there are not two scores for each example (of one example, its winner is enough).
    """
    samples: Sequence[Sample] = case.facts["batch"]
    if len(samples) == 1:
        return render_batch(case, asked, [finding])
    if len(finding.scores) != 2 * len(samples):
        raise ValueError(f"a batch of {len(samples)} wants {2 * len(samples)} scores, got {len(finding.scores)}")
    pairs = [finding.scores[start : start + 2] for start in range(0, len(finding.scores), 2)]
    return render_batch(case, asked, [_of_scores(first, second) for first, second in pairs])


def _of_scores(first: float, second: float) -> JudgeResult:
    return JudgeResult(winner="tie" if first == second else 1 if first > second else 2)


def render_batch(case: JudgeTask, asked: ChatRequest, findings: Sequence[JudgeResult]) -> Reply:
    """The reply to a batch with a finding for each of `case.facts["batch"]`, in their order."""
    samples: Sequence[Sample] = case.facts["batch"]
    lines = []
    for sample, finding in zip(samples, findings, strict=True):
        better = winner_of_two(replace(case, sample=sample), finding)
        lines.append("Output (a)" if better == 1 else "Output (b)")
    return Reply(texts=("\n".join(lines),) * asked.n)


DIALECTS: tuple[Dialect, ...] = (
    Dialect(name="alpaca-eval-ranking", recognise=_ranking, render=_render_ranking),
    Dialect(name="alpaca-eval-function", recognise=_function, render=_render_function),
    Dialect(name="alpaca-eval-identifier", recognise=_identifier, render=_render_identifier),
    Dialect(name="alpaca-eval-batch", recognise=_batch, render=_render_batch),
)
