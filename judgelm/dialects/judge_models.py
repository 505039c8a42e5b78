"""Prompts for judge models and graders: Auto-J, PandaLM, Prometheus, Flow-Judge, G-Eval, SimpleQA, and inspect_ai."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice

from judgelm.dialects import replies
from judgelm.dialects.contract import (
    AMBIGUOUS,
    ChatRequest,
    Dialect,
    JudgeResult,
    JudgeTask,
    TaskKind,
    last_text,
    lone_text,
    sample_of,
    task_from_split,
    template_dialect,
    user_text,
)
from judgelm.dialects.splits import TEMPLATES, TemplateSplit
from judgelm.records import Sample

# Auto-J (Li et al. 2023, Generative Judge for Evaluating Alignment; GAIR-NLP/auto-j), with or without Llama 2's
# tags. JudgeBench's pairwise prompt does not contain the query.
_AUTOJ_END = "\n***\n[END DATA]\n\n"
_AUTOJ_SCALE = (1.0, 10.0)


def _autoj_text(wanted: str, request: ChatRequest) -> str | None:
    text = lone_text(request)
    return text if text is not None and wanted in text.rpartition(_AUTOJ_END)[2] else None


def _autoj_decision(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    decision = "Tie" if result.winner == "tie" else f"Response {replies.winner_of_two(task, result)}"
    return replies.reason_and_verdict(request, result, f"So, the final decision is {decision}.")


def _autoj_rating(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    return replies.reason_and_verdict(request, result, f"Rating: [[{replies.grade_text(result, _AUTOJ_SCALE)}]]")


# PandaLM (Wang et al. 2023; WeOpenML/PandaLM), also sent by JudgeBench. The first line of the reply is `1`, `2`, or
# `Tie`, followed by a reason. The client strips the answers and removes special tokens from them. JudgeBench's prompt
# does not have an input field.
_PANDALM_REPLY = "{verdict}\n\n### Reason: {words}"


def _pandalm_prompt(request: ChatRequest) -> str | None:
    """Strip trailing line breaks, whose number varies between clients."""
    text = lone_text(request)
    return None if text is None else text.rstrip("\n")


def _pandalm_text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    verdict = "Tie" if result.winner == "tie" else str(replies.winner_of_two(task, result))
    taken = len(_PANDALM_REPLY.format(verdict="Tie", words=""))
    return replies.reason_and_verdict(request, result, verdict, _PANDALM_REPLY, taken=taken)


# Prometheus (Kim et al. 2024, Prometheus 2; prometheus-eval/prometheus-eval) grades a response from 1 to 5 against a
# rubric, or chooses the better of two responses. RewardBench and JudgeBench send the pair prompt with different
# instructions. The reply ends with `[RESULT]` and the verdict. Ties are not allowed.
_PROMETHEUS_TASK = "###Task Description:\n"
_PROMETHEUS_MARK = "[RESULT]"
_PROMETHEUS_REFERENCE = "a reference answer"  # part of the task description if there is a reference
_PROMETHEUS_SCALE = (1.0, 5.0)


def _prometheus_dialect(name: str, kind: TaskKind, heading: str) -> Dialect:
    by_reference, plain = templates = (TEMPLATES[f"{name}-reference"], TEMPLATES[name])

    def recognise(request: ChatRequest) -> JudgeTask | None:
        description, marker, rest = (user_text(request) or "").partition(heading)
        is_known = description.lstrip("\n").startswith(_PROMETHEUS_TASK) and _PROMETHEUS_MARK in description
        if not marker or not is_known:
            return None
        rest = rest.rstrip(" \n")
        split = (by_reference.split(rest) if _PROMETHEUS_REFERENCE in description else None) or plain.split(rest)
        if split is None:
            return None
        scale = _PROMETHEUS_SCALE if kind == "grade" else None
        return task_from_split(name, kind, split, scale=scale, criterion=split.values["criterion"].strip("\n"))

    return Dialect(name=name, recognise=recognise, render=replies.each_reply(_prometheus_text), templates=templates)


def _prometheus_text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    if task.kind == "grade":
        verdict = replies.grade_text(result, _PROMETHEUS_SCALE, whole=True)
    else:
        verdict = replies.winner_name("A", "B")(task, request, result)
    layout = f"Feedback: {{words}} {_PROMETHEUS_MARK} {{verdict}}"
    return replies.reason_and_verdict(request, result, verdict, layout, otherwise="See the result.")


# Flow-Judge (Flow AI 2024; flowaicom/flow-judge): inputs and an output in user-defined tags, a criterion, and a rubric.
# lighteval omits the inner tags, and its parser expects exactly one whitespace character on each side of the score. An
# input called query, question, or instruction becomes the question; an input called reference or context becomes the
# reference. All other inputs go into the sample's `inputs`. A rubric with the scores 0 and 1 means a label; any other
# rubric means a grade.
_FLOWJUDGE = TEMPLATES["flowjudge"]
_BY_REFERENCE = TEMPLATES["flowjudge-by-reference"]
_RUBRIC_SCORE = re.compile(r"(?m)^- Score (-?\d{1,3}):")
_TAG = re.compile(r"<([^<>/\n]{1,80})>\n")
_QUESTION_TAGS = ("query", "question", "instruction", "prompt", "user_query", "user_question", "input")
_REFERENCE_TAGS = ("reference_answer", "reference", "context")
_REPLY_MARKUP = 50  # number of characters in the tags of a reply
_MAX_TAGS = 32
_MAX_TRIES = 2_000


def _recognise_flowjudge(request: ChatRequest) -> JudgeTask | None:
    text = lone_text(request)
    split = None if text is None else _FLOWJUDGE.split(text)
    levels = {float(match[1]) for match in _RUBRIC_SCORE.finditer(split.values["rubric"])} if split else set()
    if split is None or len(levels) < 2:
        return None
    scale = (min(levels), max(levels))
    kind: TaskKind = "label" if scale == (0.0, 1.0) else "grade"
    sample, unclear = _flowjudge_sample(split.values)
    doubt = AMBIGUOUS if unclear or split.ambiguous else ""
    return JudgeTask(dialect="flowjudge", kind=kind, sample=sample, scale=scale, doubt=doubt)


def _flowjudge_sample(values: Mapping[str, str]) -> tuple[Sample, bool]:
    criterion = f"{values['criterion']}\n\n{values['rubric']}"
    by_reference = _BY_REFERENCE.split(values["criterion"])
    if by_reference is not None:
        reference = by_reference.values["reference"]
        return sample_of(values["inputs"], (values["output"],), reference, criterion=criterion), False
    inputs, inputs_unclear = _tagged(values["inputs"])
    outputs, outputs_unclear = _tagged(values["output"])
    question, known, others = _sorted_inputs(inputs) if inputs else (values["inputs"], None, None)
    # multiple outputs are judged as one text
    answer = outputs[0][1] if len(outputs) == 1 else values["output"]
    sample = sample_of(question, (answer,), known, criterion=criterion, inputs=others)
    return sample, inputs_unclear or outputs_unclear


def _tagged(text: str) -> tuple[list[tuple[str, str]], bool]:
    search = _Tags(text)
    ways = list(islice(search.ways(0, _MAX_TAGS), 2))
    return (ways[0] if ways else []), len(ways) > 1 or search.tried > _MAX_TRIES


@dataclass
class _Tags:
    """Enumerates possible ways to parse tags, up to a limit, because texts may contain thousands of fake tags."""

    text: str
    tried: int = 0

    def ways(self, begin: int, most: int) -> Iterator[list[tuple[str, str]]]:
        opened = _TAG.match(self.text, begin)
        if opened is None or most == 0:
            return
        closing = f"\n</{opened[1]}>"
        position = self.text.find(closing, opened.end())
        while position >= 0 and self.tried <= _MAX_TRIES:
            self.tried += 1
            end = position + len(closing)
            tagged = (opened[1], self.text[opened.end() : position])
            if end == len(self.text):
                yield [tagged]
            elif self.text.startswith("\n", end):
                for others in self.ways(end + 1, most - 1):
                    yield [tagged, *others]
            position = self.text.find(closing, position + 1)


def _sorted_inputs(inputs: list[tuple[str, str]]) -> tuple[str, str | None, tuple[tuple[str, str], ...] | None]:
    left = list(inputs)
    question = next((tagged for tagged in left if tagged[0].lower() in _QUESTION_TAGS), None)
    if question is None:
        question = next((tagged for tagged in left if tagged[0].lower() not in _REFERENCE_TAGS), left[0])
    left.remove(question)
    reference = next((tagged for tagged in left if tagged[0].lower() in _REFERENCE_TAGS), None)
    if reference is not None:
        left.remove(reference)
    return question[1], None if reference is None else reference[1], tuple(left) or None


def _flowjudge_text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    assert task.scale is not None
    low, high = task.scale
    if task.kind == "label":
        score = replies.format_number(high if replies.is_fulfilled(result) else low)
    else:
        score = replies.grade_text(result, task.scale, whole=True)
    layout = "<feedback>\n{words}\n</feedback>\n<score>\n{verdict}\n</score>"
    return replies.reason_and_verdict(request, result, score, layout, otherwise="See the score.", taken=_REPLY_MARKUP)


# G-Eval's original script has four metrics for summaries, each with a system message that asks for a bare number. Users
# edit the prompt files, so we only match the form at the end, the metric with its scale, and the headings. The fluency
# prompt does not contain the source text.
_GEVAL_HEAD = re.compile(
    r"You will be given (?:one summary written for a news article|a news article)\..*?"
    r"\n\nEvaluation Criteria:\n\n(?P<criterion>.*?)(?=\n\n\nExample:\n)",
    re.DOTALL,
)
_GEVAL_TEXTS = (TEMPLATES["geval"], TEMPLATES["geval-blank"], TEMPLATES["geval-fluency"])
_GEVAL_FORM = re.compile(r"\n\n\nEvaluation Form \(scores ONLY\):\n\n- (?P<metric>[A-Z][a-z]+)(?: \(\d+-\d+\))?:\s*\Z")


def _recognise_geval(request: ChatRequest) -> JudgeTask | None:
    texts = request.only("system")
    form = _GEVAL_FORM.search(texts[0]) if texts else None
    head = _GEVAL_HEAD.match(texts[0]) if texts else None
    if texts is None or form is None or head is None:
        return None
    scale = re.search(rf"{form['metric']} \((\d+)-(\d+)\)", head["criterion"])
    body = texts[0][head.end() : form.start()]
    split: TemplateSplit | None = next(filter(None, (pattern.split(body) for pattern in _GEVAL_TEXTS)), None)
    if scale is None or split is None:
        return None
    limits = (float(scale[1]), float(scale[2]))
    return task_from_split("geval", "grade", split, scale=limits, criterion=head["criterion"])


def _geval_text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    """Return a decimal grade. The client averages the first number in each reply."""
    return replies.grade_text(result, task.scale)


# inspect_ai's model-graded scorers use a criterion (`model_graded_qa`) or a reference answer (`model_graded_fact`).
# Users write the instructions after the data. Replies are `C` or `I`, never `P` (partially correct). Source: requests
# and replies captured from inspect_ai 0.3.
def _inspect_text(task: JudgeTask, result: JudgeResult) -> str:
    return f"{replies.explanation(result)}\n\nGRADE: {'C' if replies.is_fulfilled(result) else 'I'}"


# SimpleQA's grader: the reply is `A` (correct) or `B` (incorrect). Users choose the worked examples. We never return
# `C`, because the probability that an answer is correct cannot distinguish "incorrect" from "not attempted".
DIALECTS: tuple[Dialect, ...] = (
    *(
        template_dialect(
            name,
            "label",
            text=last_text("user", strip=lambda text: text.lstrip("\n")),
            accepts=lambda request, split: "GRADE: " in split.values["instructions"],
            render=replies.same_reply(_inspect_text),
        )
        for name in ("inspect-model-graded-qa", "inspect-model-graded-fact")
    ),
    template_dialect(
        "autoj-pair",
        "pair",
        text=partial(_autoj_text, "final decision is Response 1 / Response 2 / Tie"),
        render=replies.each_reply(_autoj_decision),
    ),
    template_dialect(
        "autoj-single",
        "grade",
        text=partial(_autoj_text, "[[rating]]"),
        scale=_AUTOJ_SCALE,
        render=replies.each_reply(_autoj_rating),
    ),
    template_dialect(
        "pandalm",
        "pair",
        TEMPLATES["pandalm"],
        TEMPLATES["pandalm-with-input"],
        text=_pandalm_prompt,
        render=replies.each_reply(_pandalm_text),
    ),
    _prometheus_dialect("prometheus-absolute", "grade", "\n\n###The instruction to evaluate:\n"),
    _prometheus_dialect("prometheus-relative", "pair", "\n\n###Instruction:\n"),
    Dialect(
        name="flowjudge",
        recognise=_recognise_flowjudge,
        render=replies.each_reply(_flowjudge_text),
        templates=(_FLOWJUDGE,),
    ),
    Dialect(name="geval", recognise=_recognise_geval, render=replies.each_reply(_geval_text), templates=_GEVAL_TEXTS),
    template_dialect(
        "simpleqa",
        "label",
        text=last_text("user", strip=str.strip),
        render=replies.same_reply(lambda task, result: "A" if replies.is_fulfilled(result) else "B"),
    ),
)
