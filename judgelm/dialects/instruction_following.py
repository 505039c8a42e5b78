"""Judges for instruction following: AlpacaEval's annotators and LLMBar's evaluators.

`m` and `model_1` stand for the first output. Clients shuffle the outputs.

Sources: AlpacaEval (Li et al. 2023), tatsu-lab/alpaca_eval; Zeng et al. 2023, Evaluating Large Language Models at
Evaluating Instruction Following, princeton-nlp/LLMBar.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from judgelm.dialects import replies
from judgelm.dialects.contract import (
    ChatRequest,
    Dialect,
    JudgeResult,
    JudgeTask,
    Render,
    Reply,
    ReplyText,
    TaskKind,
    Tool,
    ambiguity_note,
    sample_of,
    task_from_split,
    template_dialect,
    user_text,
)
from judgelm.dialects.splits import TEMPLATES, Pattern

# AlpacaEval expects a ranking as a Python literal, as function arguments, or as a single token (`m` or `M`).
_MIN_ROOM = 60  # minimum number of tokens for an explanation and a verdict
_IDENTIFIERS = {1: "m", 2: "M"}
_MODELS = {1: "model_1", 2: "model_2"}


def _asks_to_explain(template: Pattern, text: str) -> Mapping[str, bool]:
    return {"explanation": "explanation" in text.rpartition(template.anchors[-1])[2].lower()}


def _call_or_text(text: ReplyText) -> Render:
    """Call the function if the client offers one, because such clients only parse JSON."""

    def render(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> Reply:
        fitting = [tool for tool in request.tools if "ordered_models" in _properties(tool)]
        forced = [tool for tool in fitting if tool.name == request.forced_tool]
        tool = next(iter(forced or fitting), None)
        if tool is None:
            return replies.each_reply(text)(task, request, result)
        [first, *_] = replies.results_per_reply(request, result)
        return Reply(tool=tool.name, arguments=json.dumps(_arguments(task, request, first, tool)))

    return render


def _literal(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    rank = replies.winner_of_two(task, result)
    return f"[{{'model': 'model_1', 'rank': {rank}}}, {{'model': 'model_2', 'rank': {3 - rank}}}]"


def _arguments_text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    return json.dumps(_arguments(task, request, result, None))


def _properties(tool: Tool | None) -> Any:
    properties = tool.parameters.get("properties") if tool is not None else None
    return properties if isinstance(properties, dict) else {}


def _arguments(task: JudgeTask, request: ChatRequest, result: JudgeResult, tool: Tool | None) -> dict[str, object]:
    better = replies.winner_of_two(task, result)
    names = _MODELS if task.dialect == "alpaca-eval-ranking" else _IDENTIFIERS
    models = [names[better], names[3 - better]]
    ranks = {"ordered_models": [{"model": model, "rank": rank} for rank, model in enumerate(models, start=1)]}
    if "concise_explanation" not in _properties(tool):
        return {**ranks}
    words = replies.scores_and_reason(result, replies.room_for_words(request, len(json.dumps(ranks)) + 30))
    return {"concise_explanation": words, **ranks}


def _render_token(names: Mapping[int, str], task: JudgeTask, request: ChatRequest, result: JudgeResult) -> Reply:
    """Put the verdict last, because the client parses the last token."""
    texts = []
    for drawn in replies.results_per_reply(request, result):
        likelier = request.logprobs and request.n == 1
        better = replies.likelier_answer(task, drawn) if likelier else replies.winner_of_two(task, drawn)
        texts.append(_before_token(task, request, drawn, names) + names[better])
    if not request.logprobs:
        return Reply(texts=tuple(texts))
    first = replies.probability_first(result)
    probabilities = {names[1]: first, names[2]: 1 - first}
    logprobs = replies.verdict_logprobs(texts[0], texts[0][-1], probabilities, request.top_logprobs)
    return Reply(texts=tuple(texts), logprobs=logprobs)


def _before_token(task: JudgeTask, request: ChatRequest, result: JudgeResult, names: Mapping[int, str]) -> str:
    if not task.facts["explanation"] or (request.max_tokens is not None and request.max_tokens < _MIN_ROOM):
        return ""
    words = replies.scores_and_reason(result, replies.room_for_words(request, 2))
    if re.search(rf"\b[{names[1]}{names[2]}]\b", words):
        words = replies.scores_and_reason(replace(result, reason=None), None)
    return f"{words}\n" if words else ""


_RANKING_TEMPLATES = (TEMPLATES["alpaca-eval-ranking"], TEMPLATES["alpaca-eval-aviary"])
_RANKINGS: tuple[tuple[str, tuple[Pattern, ...], Render], ...] = (
    ("alpaca-eval-ranking", _RANKING_TEMPLATES, _call_or_text(_literal)),
    ("alpaca-eval-function", (), _call_or_text(_arguments_text)),
    ("alpaca-eval-identifier", (), partial(_render_token, _IDENTIFIERS)),
)
"""Name, templates (if there are several), and reply function of each dialect."""

# AlpacaEval's batch prompts contain numbered pairs after the client's worked examples.
_MAX_IN_BATCH = 64
_BATCH_START = "## Annotation starts below\n"
_BATCH_END = re.compile(r"\n\n## Preferred Output for example ([0-9]{1,4})-([0-9]{1,4}):\n[^\n]*\Z")


def _recognise_batch(request: ChatRequest) -> JudgeTask | None:
    text = user_text(request)
    ended = None if text is None else _BATCH_END.search(text)
    if text is None or ended is None:
        return None
    indices = range(int(ended[1]), int(ended[2]) + 1)
    if not 1 <= len(indices) <= _MAX_IN_BATCH:
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
    first_sample = sample_of(samples[0].question, samples[0].answers, batch=turns if len(turns) > 1 else None)
    facts, doubt = {"batch": samples}, ambiguity_note(split)
    return JudgeTask(dialect="alpaca-eval-batch", kind="pair", sample=first_sample, facts=facts, doubt=doubt)


def _render_batch(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> Reply:
    results = result.batch or (result,)
    better = (
        replies.winner_name("Output (a)", "Output (b)")(replace(task, sample=sample), request, each)
        for sample, each in zip(task.facts["batch"], results, strict=True)
    )
    return Reply(texts=("\n".join(better),) * request.n)


# AlpacaEval's annotators with a worked example (`chatgpt`, `gpt4`, `gpt4_turbo`, and similar) expect `Output (a)` or
# `Output (b)`, or `A` or `B`. The example is always the same. The task follows the first line that introduces it.
_OPENING = "Select the output "
_TASK = "\n# Task:\nNow is the real task"
_LETTER_EXPLAINED = TEMPLATES["alpaca-eval-letter-explained"]
_ARGUMENT = "best_output"


def _real_task(request: ChatRequest) -> str | None:
    text = user_text(request) or ""
    _, announced, body = text.partition(_TASK)
    return body if announced and text.startswith(_OPENING) else None


def _render_choice(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> Reply:
    name = replies.winner_name("Output (a)", "Output (b)")
    chosen = [name(task, request, drawn) for drawn in replies.results_per_reply(request, result)]
    for tool in request.tools:
        if _ARGUMENT in (tool.parameters.get("properties") or ()):
            return Reply(tool=tool.name, arguments=json.dumps({_ARGUMENT: chosen[0]}))
    return Reply(texts=tuple(chosen))


# LLMBar expects `Output (a)` or `Output (b)`, with or without an explanation, or a rating from 0 to 9. Some strategies
# first request questions or a reference output and insert them into the judge prompt. We answer these requests with
# fixed texts, and remove the fixed texts from the sample.
_LLMBAR_SCALE = (0.0, 9.0)
_START = "# Instruction:\n"
_ANSWERS = "{question}\n\n# Output (a):\n{first}\n\n# Output (b):\n{second}"
_ANSWER = "{question}\n\n# Output:\n{first}"
_QUESTIONS = (
    "\n\n# Questions about Outputs:\nHere are at most three questions about the outputs, which are presented from most "
    "important to least important. You can do the evaluation based on thinking about all the questions.\n{criterion}"
)
_REFERENCES = (
    "\n\n# A reference output generated by a strong AI assistant:\n{reference}",
    "\n\n# Reference Output Generated by a Strong AI Assistant:\n{reference}",
)
_DEBATE = (
    "\n\n# Debate between Assistant (a) and Assistant (b)\n"
    "## Evaluation given by Assistant (a), who thinks Output (a) is better:\n{for_first}\n"
    "## Evaluation given by Assistant (b), who thinks Output (b) is better:\n{for_second}"
)
_SECTIONS = (*(_QUESTIONS + reference for reference in _REFERENCES), *_REFERENCES, _QUESTIONS, _DEBATE, "")
"""Possible sections between the answers and the last line, longest first."""

_BARE = '\n\n# Which is better, Output (a) or Output (b)? Your response should be either "Output (a)" or "Output (b)":'
_DECISION = (
    "\n\n# Decision (Give a brief explanation of your evaluation followed by either "
    '"Therefore, Output (a) is better." or "Therefore, Output (b) is better." verbatim. Always claim which is better '
    'at the end. In your explanation, you should always use "Output (a)" or "Output (b)" to refer to the two outputs '
    "respectively.):"
)
_SCORE = "\n\n# Score of the Output (Your response should be ONLY the score, an integer between 0 and 9):"
_WANTED_QUESTIONS = "\n\n# Requirements for Your Output:\n(1) The questions should **specifically** target the given "
_CONCISE = "You are a helpful assistant that responds to the user in a concise way."
_REFERENCE_TOKENS = 384
_FIXED = {
    "criterion": "1. Does the output do precisely what the instruction asks for?\n2. Is the output correct?\n"
    "3. Is everything in the output needed?",
    "reference": "There is no reference output for this instruction.",
}


def _llmbar_dialect(kind: TaskKind, answers: str, *ends: str, render: Render) -> Dialect:
    name, scale = ("llmbar-choice", None) if kind == "pair" else ("llmbar-rating", _LLMBAR_SCALE)

    def recognise(request: ChatRequest) -> JudgeTask | None:
        if request.roles not in (("system", "user"), ("system", "user", "assistant", "user")):
            return None
        before, heading, text = request.messages[-1].text.partition(_START)
        if not heading or (before and not before.endswith("\n\n")):
            return None
        for end, section in product(ends, _SECTIONS):
            split = Pattern(answers + section + end).split(text)
            if split is not None:
                values = {slot: value for slot, value in split.values.items() if value != _FIXED.get(slot)}
                facts = {"explanation": end == _DECISION}
                return task_from_split(name, kind, replace(split, values=values), scale=scale, facts=facts)
        return None

    templates = tuple(Pattern(_START + answers + end) for end in ends)
    return Dialect(name=name, recognise=recognise, render=render, templates=templates)


def _recognise_preparation(request: ChatRequest) -> JudgeTask | None:
    texts = request.only("system", "user")
    if texts is None:
        return None
    if texts[0] == _CONCISE and request.max_tokens == _REFERENCE_TOKENS:
        question, reply = texts[1], _FIXED["reference"]
    else:
        _, heading, after = texts[1].partition("\n\n" + _START)
        question, wanted, _ = after.rpartition(_WANTED_QUESTIONS)
        if not (heading and wanted):
            return None
        reply = _FIXED["criterion"]
    sample = sample_of(question, ())
    return JudgeTask(dialect="llmbar-preparation", kind="prepare", sample=sample, facts={"reply": reply})


def _llmbar_rating(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    return replies.grade_text(result, _LLMBAR_SCALE, whole=True)


def _llmbar_text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    verdict = replies.winner_name("Output (a)", "Output (b)")(task, request, result)
    if not task.facts["explanation"]:
        return verdict
    claim = f"Therefore, {verdict} is better."  # the client expects a character after "better"
    return replies.reason_and_verdict(request, result, claim, "{words} {verdict}")


DIALECTS: tuple[Dialect, ...] = (
    *(
        template_dialect(name, "pair", *templates, text=user_text, facts=_asks_to_explain, render=render)
        for name, templates, render in _RANKINGS
    ),
    Dialect(name="alpaca-eval-batch", recognise=_recognise_batch, render=_render_batch),
    template_dialect(
        "alpaca-eval-choice",
        "pair",
        text=_real_task,
        facts=lambda template, text: {"explanation": False},
        render=_render_choice,
    ),
    template_dialect(
        "alpaca-eval-letter",
        "pair",
        TEMPLATES["alpaca-eval-letter"],
        _LETTER_EXPLAINED,
        text=_real_task,
        facts=lambda template, text: {"explanation": template is _LETTER_EXPLAINED},
        render=partial(_render_token, {1: "A", 2: "B"}),
    ),
    _llmbar_dialect("pair", _ANSWERS, _BARE, _DECISION, render=replies.each_reply(_llmbar_text)),
    _llmbar_dialect("grade", _ANSWER, _SCORE, render=replies.each_reply(_llmbar_rating)),
    Dialect(
        name="llmbar-preparation",
        recognise=_recognise_preparation,
        render=replies.same_reply(lambda task, result: str(task.facts["reply"])),
    ),
)
