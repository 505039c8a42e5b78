"""Graders of evaluation frameworks: DeepEval, promptfoo, ragas, openevals, agentevals and inspect_ai.

Criteria and rubrics are the user's; a dialect recognises the fixed texts around them, or the schema of the reply.

Sources: captured requests and replies of DeepEval 4.3, promptfoo 0.121, ragas 0.4, openevals 0.2, agentevals 0.0.9
and inspect_ai 0.3.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from judgelm.dialects.contract import (
    AMBIGUOUS,
    ChatRequest,
    Dialect,
    JudgeResult,
    JudgeTask,
    Reply,
    TokenLogprobs,
    ambiguity_note,
    last_text,
    sample_of,
    template_dialect,
    user_text,
)
from judgelm.dialects.replies import (
    best_answer,
    each_reply,
    expected_grade,
    explanation,
    format_number,
    grade_text,
    is_fulfilled,
    rescale,
    results_per_reply,
    same_reply,
    verdict_logprobs,
    winner_of_two,
)
from judgelm.dialects.splits import TEMPLATES, Pattern, TemplateSplit
from judgelm.records import Sample


def _json(row: Mapping[str, object]) -> str:
    return json.dumps(row, ensure_ascii=False)


# DeepEval's G-Eval: the steps it asks for out of a criterion, the grade it then asks for, and its strict form. The
# order and choice of the fields is the user's, so they are split by the list of their names, which the prompt holds.
_FIELDS = (
    *("Input", "Actual Output", "Expected Output", "Context", "Retrieval Context", "Metadata", "Tags"),
    *("Expected Tools", "Tools Called"),
)
_OUTPUT = "Actual Output"
_CONTEXTS = ("Context", "Retrieval Context")
_WANTED = re.compile(
    r"You are an evaluator\. Given the following [^\n]+, assess the response below and return a JSON object with two "
    r"fields:\n\n- `\"score\"`: an integer between (\d+) and (\d+), "
)
_STEPS_START = "\n---\n\nEvaluation Steps:\n"
_CASE_START = "\n\nTest Case:\n"
_NAMES_START = "\n\nParameters:\n"
_GRADE_END = re.compile(
    r"\n\n---\n\*\*Example JSON:\*\*\n\{\n  \"reason\": \"[^\"\n]*\",\n  \"score\": \d+\n\}\n\nJSON:\s*\Z"
)
_STRICT = TEMPLATES["deepeval-geval-strict"]
_STRICT_STEPS = "\nEvaluation Steps:\n"
_STEPS = (
    "Read the given fields and note what the criteria ask for.",
    "Compare the actual output with what the criteria ask for, and with the other fields.",
    "Lower the score for every point in which the actual output falls short of the criteria.",
)
_FAINTEST = 0.01
"""The client leaves out tokens that are less probable than this."""

_stripped_user = last_text("user", strip=str.rstrip)


def _recognise_grade(request: ChatRequest) -> JudgeTask | None:
    texts = request.only("user")
    wanted = _WANTED.match(texts[0]) if texts else None
    end = _GRADE_END.search(texts[0]) if texts else None
    if texts is None or wanted is None or end is None:
        return None
    steps, _, rest = texts[0][: end.start()].partition(_STEPS_START)[2].partition(_CASE_START)
    fields, _, names = rest.rpartition(_NAMES_START)  # where a part is missing, there are no fields
    sample, why = _sample_in_fields(fields, _names(names.partition("\n")[0]), steps)
    if sample is None:
        return None
    if _CASE_START in rest:
        why = "a text holds the line that starts the test case"
    scale = (float(wanted[1]), float(wanted[2]))
    return JudgeTask(dialect="deepeval-geval", kind="grade", sample=sample, scale=scale, doubt=why)


def _recognise_strict(request: ChatRequest) -> JudgeTask | None:
    text = _stripped_user(request)
    split = None if text is None else _STRICT.split(text)
    names = _names(split.values["names"]) if split else ()
    if split is None or not names:
        return None
    _, _, body = split.values["steps"].partition(_STRICT_STEPS)
    steps, start, fields = body.partition(f"\n\n{names[0]}:\n")
    sample, why = _sample_in_fields(start[2:] + fields, names, steps)
    if sample is None:
        return None
    if start in fields:
        why = "a text holds the line that starts the first field"
    return JudgeTask(dialect="deepeval-geval-strict", kind="label", sample=sample, doubt=why or ambiguity_note(split))


def _names(line: str) -> tuple[str, ...]:
    """The fields named in "Input, Actual Output, and Expected Output"; none where one is unknown."""
    names = tuple(re.split(r", and | and |, ", line))
    return names if all(name in _FIELDS for name in names) and len(set(names)) == len(names) else ()


def _sample_in_fields(text: str, names: Sequence[str], steps: str) -> tuple[Sample | None, str]:
    """The sample in the fields, each of which is its name, its text and a blank line; and the doubt about it."""
    if _OUTPUT not in names:
        return None, ""
    pattern = Pattern("".join(f"{name}:\n{{{_slot(name)}}} \n\n" for name in names))
    split = pattern.split(text.rstrip("\n") + "\n\n")  # the template decides how many blank lines follow
    if split is None:
        return None, ""
    contexts = [split.values[_slot(name)] for name in _CONTEXTS if name in names]
    sample = sample_of(
        split.values.get(_slot("Input"), ""),
        (split.values[_slot(_OUTPUT)],),
        split.values.get(_slot("Expected Output")),
        criterion=steps.strip(),
        context="\n\n".join(contexts) or None,
    )
    return sample, ambiguity_note(split)


def _slot(name: str) -> str:
    return name.lower().replace(" ", "_")


def _render_grade(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> Reply:
    """The grade; as a whole number with the probabilities of all where these are asked for, else with decimals."""
    assert task.scale is not None
    scale = task.scale
    drawn = results_per_reply(request, result)
    texts = tuple(_graded(each, grade_text(each, scale, whole=request.logprobs)) for each in drawn)
    if not request.logprobs:
        return Reply(texts=texts)
    grade = grade_text(drawn[0], scale, whole=True)
    probabilities = {grade: 0.0} | {str(whole): share for whole, share in _whole_grades(result, scale).items()}
    before_end = verdict_logprobs(texts[0].removesuffix("}"), grade, probabilities, request.top_logprobs)
    end = TokenLogprobs(token="}", logprob=0.0, candidates=(("}", 0.0),)[: request.top_logprobs])
    return Reply(texts=texts, logprobs=(*before_end, end))


def _graded(result: JudgeResult, grade: str) -> str:
    """No digits beside the grade: the client takes the last token that looks like it."""
    reason = json.dumps(explanation(result, digits=False), ensure_ascii=False)
    return f'{{"reason": {reason}, "score": {grade}}}'


def _whole_grades(result: JudgeResult, scale: tuple[float, float]) -> Mapping[int, float]:
    """Whole grades of the client with their probabilities, whose mean is the expected grade on the client's scale.

    A score that lies between two whole grades is shared by both. Grades that the client would leave out are left out.
    """
    shares: dict[int, float] = {}
    for score, share in result.grades or ((expected_grade(result), 1.0),):
        rescaled = rescale(score, scale)
        below = math.floor(rescaled)
        for grade, part in ((below, 1 - (rescaled - below)), (below + 1, rescaled - below)):
            shares[grade] = shares.get(grade, 0.0) + part * share
    likely = {grade: share for grade, share in shares.items() if share >= _FAINTEST}
    total = sum(likely.values())
    return {grade: share / total for grade, share in likely.items()}


_DEEPEVAL = (
    Dialect(name="deepeval-geval", recognise=_recognise_grade, render=_render_grade),
    Dialect(
        name="deepeval-geval-strict",
        recognise=_recognise_strict,
        render=same_reply(lambda task, result: _graded(result, "1" if is_fulfilled(result) else "0")),
        templates=(_STRICT,),
    ),
    template_dialect(
        "deepeval-geval-steps",
        "prepare",
        text=_stripped_user,
        render=same_reply(lambda task, result: json.dumps({"steps": list(_STEPS)})),
    ),
)

# promptfoo's model-graded assertions: llm-rubric, closed QA, factuality, G-Eval and select-best. The prompts of
# llm-rubric and select-best show no question.
_bare_user, _bare_system = last_text("user", strip=str.strip), last_text("system", strip=str.strip)
_REPLY_STEPS = (
    "Note what the criteria ask of a reply.",
    "Check the reply against each of these points.",
    "Lower the score for every point that the reply does not meet.",
)
_BEST = (
    "You are comparing multiple pieces of text to see which best fits the following criteria: {criterion}\n\n"
    "Here are the pieces of text:\n\n\n"
)
_BEST_END = "\n\n\nOutput the index of the text that best fits the criteria. You must output a single integer."
_MOST_TEXTS = 64
"""A prompt of more is not of this dialect: thousands of imitated texts must not stop a server."""


def _recognise_best(request: ChatRequest) -> JudgeTask | None:
    """Texts are counted by their indices, as many as there are in a row."""
    text = _bare_system(request)
    if text is None:
        return None
    most = 0
    while most <= _MOST_TEXTS and f'<Text index="{most}">\n' in text:
        most += 1
    if most > _MOST_TEXTS:
        return None
    for count in range(most, 1, -1):
        if (split := _best_template(count).split(text)) is not None:
            answers = tuple(split.values[f"text_{index}"] for index in range(count))
            return JudgeTask(
                dialect="promptfoo-select-best",
                kind="pair" if count == 2 else "choice",
                sample=sample_of("", answers, criterion=split.values["criterion"]),
                doubt=ambiguity_note(split),
            )
    return None


def _best_template(count: int) -> Pattern:
    texts = "\n\n".join(f'<Text index="{index}">\n{{text_{index}}}\n</Text>' for index in range(count))
    return Pattern(_BEST + texts + _BEST_END)


def _rubric_text(task: JudgeTask, result: JudgeResult) -> str:
    """`score` is the probability that the rubric is fulfilled; `pass` decides unless the user sets a threshold."""
    passes = is_fulfilled(result)
    score = round(result.correct, 4) if result.correct is not None else float(passes)
    return _json({"reason": explanation(result), "pass": passes, "score": score})


def _closed_qa_text(task: JudgeTask, result: JudgeResult) -> str:
    """The letter once, on the last line; the prompt wants it twice, the client reads the last."""
    return f"{explanation(result)}\n{'Y' if is_fulfilled(result) else 'N'}"


def _factuality_text(task: JudgeTask, result: JudgeResult) -> str:
    """`C` (the same details) or `D` (a disagreement): a probability of being correct says no more."""
    return _json({"category": "C" if is_fulfilled(result) else "D", "reason": explanation(result)})


def _promptfoo_grade(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    """Minified, with decimals (the client takes them); the prompt wants no score within the reason."""
    reason = json.dumps(explanation(result, digits=False), ensure_ascii=False)
    return f'{{"score":{grade_text(result, task.scale)},"reason":{reason}}}'


def _best_text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    """The index alone; of equals the one whose hash is lowest, whatever the order shown."""
    pair = len(task.sample.answers) == 2
    return str(winner_of_two(task, result) - 1 if pair else best_answer(task, result))


def _system_and_user(name: str, text: Callable[[JudgeTask, JudgeResult], str]) -> Dialect:
    """A label by a prompt in the user's message, below a system message of its own template."""
    system = TEMPLATES[f"{name}-system"]
    dialect = template_dialect(
        name,
        "label",
        text=last_text("system", "user", strip=str.strip),
        accepts=lambda request, split: system.split(request.messages[0].text.strip()) is not None,
        render=same_reply(text),
    )
    return replace(dialect, templates=(*dialect.templates, system))


_PROMPTFOO = (
    _system_and_user("promptfoo-llm-rubric", _rubric_text),
    template_dialect("promptfoo-closedqa", "label", text=_bare_system, render=same_reply(_closed_qa_text)),
    _system_and_user("promptfoo-factuality", _factuality_text),
    template_dialect("promptfoo-g-eval", "grade", text=_bare_user, scale=(0, 10), render=each_reply(_promptfoo_grade)),
    template_dialect(
        "promptfoo-g-eval-steps",
        "prepare",
        text=_bare_user,
        render=same_reply(lambda task, result: json.dumps({"steps": list(_REPLY_STEPS)}, separators=(",", ":"))),
    ),
    Dialect(
        name="promptfoo-select-best",
        recognise=_recognise_best,
        render=each_reply(_best_text),
        templates=(_best_template(2),),
    ),
)

# ragas: three metrics with prompts of their own, whose texts stand escaped in a JSON object behind the instruction and
# whose reply's schema says which metric it is; and the discrete metric, whose prompt is the user's altogether: texts
# are found by the usual labels at the start of a line, and what is found stays in doubt.
_RAGAS_KINDS = {
    "ragas-aspect-critic": "AspectCriticOutput",
    "ragas-simple-criteria": "SimpleCriteriaOutput",
    "ragas-rubrics": "ScoreFeedback",
}
"""Titles of the replies' schemas."""

_SCHEMA_START = (
    "\nPlease return the output in a JSON format that complies with the following schema as specified in JSON Schema:\n"
)
_TEXTS_START = "\nNow perform the same with the following input\ninput: "
_RANGE = re.compile(
    r"(?P<word>(?i:\b(?:scores?|scoring|rated?|rating|scale|grades?|from|between)\b)[^\d\n]{0,30})?"
    r"\b(?P<low>\d+)\s*(?:to|-|–|and|through)\s*(?P<high>\d+)\b"
)
_HIGHEST = 100
"""Ranges beyond it are of something else, such as years."""
_LEVEL = re.compile(r"score_?(\d+)_description")
_USUAL_RANGE = (0.0, 5.0)
"""Of criteria that name none; the client's documents use it."""

_LABELS = {
    "question": ("Question", "User Input", "User input", "Input", "Query", "Prompt", "Instruction"),
    "answer": ("Response", "Answer", "Output", "Model response", "Prediction", "Submission"),
    "reference": ("Reference", "Expected answer", "Expected", "Ground truth", "Ground Truth", "Target", "Gold answer"),
}
_GOOD = frozenset({"pass", "passed", "correct", "yes", "true", "accurate", "good", "acceptable", "valid", "1"})


def _recognise_ragas(name: str, request: ChatRequest) -> JudgeTask | None:
    texts = request.only("user")
    if texts is None:
        return None
    front, _, shown = texts[0].rpartition(_TEXTS_START)
    instruction, _, wanted = front.partition(_SCHEMA_START)
    schema, row = _object(wanted), _object(shown)
    if schema is None or row is None or str(schema.get("title")) != _RAGAS_KINDS[name]:
        return None
    if not isinstance(row.get("response"), str):
        return None  # a whole dialogue: there is no one answer to judge
    criterion = re.split(r"\nCriteria Definition: |\n\nScoring Rubrics:\n", instruction, maxsplit=1)[-1].strip()
    contexts = row.get("retrieved_contexts") or row.get("reference_contexts")
    joined = "\n\n".join(str(context) for context in contexts) if isinstance(contexts, list) else None
    question, reference = (
        text if isinstance(text := row.get(key), str) else None for key in ("user_input", "reference")
    )
    sample = sample_of(question or "", (row["response"],), reference, criterion=criterion, context=joined)
    if name == "ragas-aspect-critic":
        return JudgeTask(dialect=name, kind="label", sample=sample)
    scale = _levels(instruction, row.get("rubrics")) if name == "ragas-rubrics" else _range(criterion)
    return JudgeTask(dialect=name, kind="grade", sample=sample, scale=scale)


def _object(text: str) -> Mapping[str, Any] | None:
    """The JSON object at the start of a text."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _range(criterion: str) -> tuple[float, float]:
    """The range that a criterion names, such as "0 to 5": one behind a word for scoring goes before any other."""
    ranges = [match for match in _RANGE.finditer(criterion) if float(match["low"]) < float(match["high"]) <= _HIGHEST]
    if not ranges:
        return _USUAL_RANGE
    best = max(ranges, key=lambda match: bool(match["word"]))
    return float(best["low"]), float(best["high"])


def _levels(instruction: str, own: object) -> tuple[float, float]:
    """The lowest and highest level of the rubric, which stands in the instruction or with the texts."""
    keys = list(own) if isinstance(own, Mapping) else instruction.split("\n")
    levels = [float(match[1]) for key in keys if (match := _LEVEL.match(str(key)))]
    return (min(levels), max(levels)) if len(set(levels)) > 1 else (1.0, 5.0)


def _aspect_text(task: JudgeTask, result: JudgeResult) -> str:
    return _json({"reason": explanation(result), "verdict": 1 if is_fulfilled(result) else 0})


def _ragas_grade(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    """Whole numbers: the client refuses others."""
    assert task.scale is not None
    words = "feedback" if task.dialect == "ragas-rubrics" else "reason"
    return _json({words: explanation(result), "score": int(rescale(expected_grade(result), task.scale, whole=True))})


def _recognise_discrete(request: ChatRequest) -> JudgeTask | None:
    texts = request.only("system", "user")
    if texts is None or '"DiscreteResponseModel"' not in texts[0]:
        return None
    inner: Any = _object(texts[0][texts[0].find("{") :])
    for name in ("properties", "value", "enum"):
        inner = inner.get(name) if isinstance(inner, Mapping) else None
    if not isinstance(inner, list):
        return None
    good = [value for value in inner if str(value).lower() in _GOOD]
    bad = [value for value in inner if str(value).lower() not in _GOOD]
    if len(good) != 1 or len(bad) != 1 or (parts := _labelled(texts[1], inner)) is None:
        return None
    sample = sample_of(parts.get("question", ""), (parts["answer"],), parts.get("reference"))
    doubt = "the prompt is the user's own: its texts were found by usual labels"
    facts = {"good": good[0], "bad": bad[0]}
    return JudgeTask(dialect="ragas-discrete", kind="label", sample=sample, facts=facts, doubt=doubt)


def _labelled(prompt: str, values: Sequence[object]) -> Mapping[str, str] | None:
    """The texts behind "Question: " and the like, each at the start of a line; None where no answer is found."""
    text = "\n" + prompt
    starts = {}
    for part, labels in _LABELS.items():
        matches = [(start, label) for label in labels if (start := text.find(f"\n{label}: ")) >= 0]
        if matches:
            starts[part] = min(matches)
    if "answer" not in starts:
        return None
    order = sorted(starts, key=lambda part: starts[part])
    split = Pattern("{lead}" + "".join(f"\n{starts[part][1]}: {{{part}}}" for part in order)).split(text)
    if split is None:
        return None
    texts = {part: split.values[part] for part in order}
    ahead, line_end, last_line = texts[order[-1]].rpartition("\n")
    if line_end and all(re.search(rf"\b{re.escape(str(value))}\b", last_line) for value in values):
        texts[order[-1]] = ahead  # "Answer with pass or fail."
    return texts


def _discrete_text(task: JudgeTask, result: JudgeResult) -> str:
    return _json({"reason": explanation(result), "value": task.facts["good" if is_fulfilled(result) else "bad"]})


_RAGAS = (
    *(
        Dialect(
            name=name,
            recognise=partial(_recognise_ragas, name),
            render=same_reply(_aspect_text) if name == "ragas-aspect-critic" else each_reply(_ragas_grade),
        )
        for name in _RAGAS_KINDS
    ),
    Dialect(name="ragas-discrete", recognise=_recognise_discrete, render=same_reply(_discrete_text)),
)

# openevals: any prompt with the texts between tags, and a schema or a forced function called `score`. The kind of the
# schema's `score` (boolean, number in [0, 1], one of some numbers) says what is wanted. Some of the client's own
# prompts look for a fault: there a true or high score says that the answer is bad, while a judge's high grade says that
# it is good; so it is turned round.
_FUNCTION = "score"
_MET = "criteria in the prompt are met"
"""Stands in every description of `score` that the client writes."""

_FAULTS = (
    "You are an expert content moderator evaluating opinions for toxicity.",
    "You are an expert evaluator assessing whether text contains biased or unfair content.",
    "You are an expert evaluator assessing sensitive personal information is contained.",
    "You are an expert conversation evaluator. You will be shown a response from an AI agent.\n"
    "Your task is to assess whether the agent returned a blank, empty, or low-effort response.",
)
"""Beginnings of the client's own prompts that look for a fault: TOXICITY, FAIRNESS, PII_LEAKAGE, LAZINESS."""

_TAGS = (("input", "output"), ("inputs", "outputs"))
_REFERENCE_END = "\n</reference_outputs>"


def _recognise_openevals(request: ChatRequest) -> JudgeTask | None:
    schema = _score_schema(request)
    if schema is None or request.roles not in (("user",), ("system", "user")):
        return None
    text = request.messages[-1].text
    split = next((split for tags in _TAGS if (split := _split_tags(text, *tags)) is not None), None)
    if split is None:
        return None
    values, doubt = split
    return _scored_task("openevals", schema, values, doubt)


def _scored_task(dialect: str, schema: Mapping[str, Any], values: Mapping[str, str], doubt: str) -> JudgeTask:
    """The task that the schema of the verdict asks for."""
    score = schema["properties"]["score"]
    criterion = values["before"].strip()
    sample = sample_of(values["question"], (values["answer"],), values.get("reference"), criterion=criterion)
    choices = tuple(float(choice) for choice in score.get("enum", ()))
    facts = {
        "choices": choices,
        "reasoning": "reasoning" in schema["properties"],
        "fault": criterion.startswith(_FAULTS),
    }
    if score["type"] == "boolean":
        return JudgeTask(dialect=dialect, kind="label", sample=sample, facts=facts, doubt=doubt)
    scale = (min(choices), max(choices)) if choices else (0.0, 1.0)
    return JudgeTask(dialect=dialect, kind="grade", sample=sample, scale=scale, facts=facts, doubt=doubt)


def _score_schema(request: ChatRequest) -> Mapping[str, Any] | None:
    """The client's schema of the verdict, given as such or as the function's parameters; None where it is another."""
    schema = request.schema
    if request.forced_tool == _FUNCTION:
        schema = next((tool.parameters for tool in request.tools if tool.name == _FUNCTION), None)
    properties = schema.get("properties") if schema is not None else None
    if not isinstance(properties, Mapping) or not set(properties) <= {"reasoning", "score"}:
        return None
    score = properties.get("score")
    if not isinstance(score, Mapping) or _MET not in str(score.get("description")):
        return None
    choices = score.get("enum", [])
    numbers = isinstance(choices, list) and all(
        isinstance(choice, int | float) and not isinstance(choice, bool) for choice in choices
    )
    return schema if score.get("type") == "boolean" or (score.get("type") == "number" and numbers) else None


def _split_tags(text: str, question: str, answer: str) -> tuple[Mapping[str, str], str] | None:
    """The texts between the tags, and the doubt about them; with the reference where the last block is one."""
    start, end = f"<{question}>\n", f"\n</{answer}>"
    before, opened, rest = text.partition(start)
    body = opened + rest
    last, last_reference = body.rfind(end), body.rfind(_REFERENCE_END)
    template = f"<{question}>\n{{question}}\n</{question}>\n\n<{answer}>\n{{answer}}\n</{answer}>"
    split: TemplateSplit | None = None
    if last_reference > last:
        whole = Pattern(template + "\n\n{lead}:\n\n<reference_outputs>\n{reference}\n</reference_outputs>")
        split = whole.split(body[: last_reference + len(_REFERENCE_END)])
    if split is None:
        split = Pattern(template).split(body[: last + len(end)])
    if split is None:
        return None
    several = split.ambiguous or body.count(start) > 1 or (last_reference < last and body.count(end) > 1)
    return {**split.values, "before": before}, AMBIGUOUS if several else ""


def _render_openevals(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> Reply:
    """JSON as the schema wants it, in a call where the function is forced."""
    texts = tuple(_openevals_text(task, drawn) for drawn in results_per_reply(request, result))
    if request.forced_tool == _FUNCTION:
        return Reply(tool=_FUNCTION, arguments=texts[0])
    return Reply(texts=texts)


def _openevals_text(task: JudgeTask, result: JudgeResult) -> str:
    score = _openevals_score(task, result)
    if not task.facts["reasoning"]:
        return _json({"score": score})
    if task.facts["fault"] and result.correct is not None:
        result = replace(result, correct=1 - result.correct)  # that the criterion is met
    # the schema demands this sentence at the end of the reasoning
    reasoning = f"{explanation(result)} Thus, the score should be: {json.dumps(score)}."
    return _json({"reasoning": reasoning, "score": score})


def _openevals_score(task: JudgeTask, result: JudgeResult) -> bool | float:
    """True or false, a number with four decimals at the most, or the choice that is nearest (of two the lower one)."""
    fault = bool(task.facts["fault"])
    if task.kind == "label":
        return is_fulfilled(result) != fault
    assert task.scale is not None
    low, high = task.scale
    score = rescale(expected_grade(result), (high, low) if fault else (low, high))
    choices: tuple[float, ...] = task.facts["choices"]
    if choices:
        return min(sorted(choices), key=lambda choice: round(abs(choice - score), 9))
    return float(format_number(score, 4))


# agentevals: openevals' requests about an agent's trajectory, alone or behind a reference. The client writes messages
# between tags of their roles, as one text. There is no question: the goal is the user's first message.
_REFERENCE_TRAJECTORY, _TRAJECTORY = "<reference_trajectory>\n", "<trajectory>\n"
_TRAJECTORY_END = "\n</trajectory>"
_FIRST_USER = re.compile(r"(?:<system>\n.*?\n</system>\n\n)?<user>\n(.*?)\n</user>", re.DOTALL)
_BOTH = Pattern(
    _REFERENCE_TRAJECTORY + "{reference}\n</reference_trajectory>{lead}" + _TRAJECTORY + "{answer}" + _TRAJECTORY_END
)
_ALONE = Pattern(_TRAJECTORY + "{answer}" + _TRAJECTORY_END)


def _recognise_agentevals(request: ChatRequest) -> JudgeTask | None:
    schema, text = _score_schema(request), user_text(request)
    if schema is None or text is None:
        return None
    tags = {_REFERENCE_TRAJECTORY: _BOTH, _TRAJECTORY: _ALONE}
    starts = {place: pattern for tag, pattern in tags.items() if (place := text.find(tag)) >= 0}
    if not starts:
        return None
    start, end = min(starts), text.rfind(_TRAJECTORY_END) + len(_TRAJECTORY_END)
    split = starts[start].split(text[start:end])
    if split is None or _REFERENCE_TRAJECTORY in text[end:]:
        return None
    first = _FIRST_USER.match(split.values["answer"])
    values = {**split.values, "before": text[:start], "question": first[1] if first else ""}
    return _scored_task("agentevals", schema, values, AMBIGUOUS if split.ambiguous else "")


# inspect_ai's model-graded scorers: against a criterion (`model_graded_qa`) and against a fact (`model_graded_fact`).
# The instructions behind the data are the user's; the letters offered in them are `C` and `I`, or `C`, `P` and `I`. A
# probability of being correct says nothing about being partly so; `P` is never given. The client has taken out of the
# answer what looks like its own delimiters; the split gives what the prompt holds.


def _inspect_text(task: JudgeTask, result: JudgeResult) -> str:
    return f"{explanation(result)}\n\nGRADE: {'C' if is_fulfilled(result) else 'I'}"


_INSPECT = tuple(
    template_dialect(
        name,
        "label",
        text=last_text("user", strip=lambda text: text.lstrip("\n")),
        accepts=lambda request, split: "GRADE: " in split.values["instructions"],
        render=same_reply(_inspect_text),
    )
    for name in ("inspect-model-graded-qa", "inspect-model-graded-fact")
)

DIALECTS: tuple[Dialect, ...] = (
    *_DEEPEVAL,
    *_PROMPTFOO,
    *_RAGAS,
    Dialect(name="openevals", recognise=_recognise_openevals, render=_render_openevals),
    Dialect(name="agentevals", recognise=_recognise_agentevals, render=_render_openevals),
    *_INSPECT,
)
