"""Flow-Judge's prompt: inputs and an output in tags, a criterion, a rubric; lighteval sends it without the inner tags.

Which tags there are is the user's choice. The input that is called a query, question or instruction is the question,
the one called a reference or a context is the reference; others stand in the sample's `inputs`.

A rubric of the scores 0 and 1 asks for a label, every other one for a grade. lighteval's parser wants exactly one
blank on each side of the score, which Flow-Judge's takes as well.

Source: Flow AI 2024, Flow Judge; flowaicom/flow-judge and huggingface/lighteval.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.recognition import AMBIGUOUS, lone_text, sample_of
from judgelm.dialects.text import format_number, room_for_words, scores_and_reason
from judgelm.dialects.verdicts import each_reply, grade_text, is_fulfilled
from judgelm.records import Sample

_PROMPT = Pattern(
    "# INPUT\nBelow are the inputs required for performing the task:\n<inputs>\n{inputs}\n</inputs>\n\n"
    "# OUTPUT\nBelow is the output of the task:\n<output>\n{output}\n</output>\n\n"
    "# EVALUATION CRITERIA AND SCORING RUBRIC\n"
    "Here are the evaluation criteria and the rubric that you need to use for evaluating the task:\n"
    "<evaluation_criteria>\n{criterion}\n</evaluation_criteria>\n\n<scoring_rubric>\n{rubric}\n</scoring_rubric>\n\n",
    anywhere=True,
)
_BY_REFERENCE = Pattern("How well the response answers the question, the reference answer is:\n{reference}")
_SCORE = re.compile(r"(?m)^- Score (-?\d{1,3}):")
_TAG = re.compile(r"<([^<>/\n]{1,80})>\n")
_QUESTIONS = ("query", "question", "instruction", "prompt", "user_query", "user_question", "input")
_REFERENCES = ("reference_answer", "reference", "context")
_MARKUP = 50  # characters of a reply's tags
_MOST_TAGS = 32
_MOST_TRIES = 2_000


def _recognise(request: ChatRequest) -> JudgeTask | None:
    text = lone_text(request)
    split = None if text is None else _PROMPT.split(text)
    scale = None if split is None else _rubric_range(split.values["rubric"])
    if split is None or scale is None:
        return None
    sample, unclear = _sample(split.values)
    return JudgeTask(
        dialect="flowjudge",
        kind="label" if scale == (0.0, 1.0) else "grade",
        sample=sample,
        scale=scale,
        doubt=AMBIGUOUS if unclear or split.ambiguous else "",
    )


def _sample(values: Mapping[str, str]) -> tuple[Sample, bool]:
    """The sample, and whether its tags could be read in another way."""
    criterion = f"{values['criterion']}\n\n{values['rubric']}"
    by_reference = _BY_REFERENCE.split(values["criterion"])
    if by_reference is not None:
        reference = by_reference.values["reference"]
        return sample_of(values["inputs"], (values["output"],), reference, criterion=criterion), False
    inputs, inputs_unclear = _tagged(values["inputs"])
    outputs, outputs_unclear = _tagged(values["output"])
    question, known, others = _sorted_inputs(inputs) if inputs else (values["inputs"], None, None)
    # several outputs are judged as the one text that they stand in
    answer = outputs[0][1] if len(outputs) == 1 else values["output"]
    sample = sample_of(question, (answer,), known, criterion=criterion, inputs=others)
    return sample, inputs_unclear or outputs_unclear


def _rubric_range(rubric: str) -> tuple[float, float] | None:
    """The lowest and the highest score of a rubric."""
    scores = [float(match[1]) for match in _SCORE.finditer(rubric)]
    return (min(scores), max(scores)) if len(set(scores)) > 1 else None


def _tagged(text: str) -> tuple[list[tuple[str, str]], bool]:
    """A text as named texts in tags, each on lines of its own, one after another; empty where it is not of that kind.

    Returns:
        The names with their texts, each as short as can be, and whether there is another way, or may be.
    """
    search = _Tags(text)
    ways = list(islice(search.ways(0, _MOST_TAGS), 2))
    return (ways[0] if ways else []), len(ways) > 1 or search.tried > _MOST_TRIES


@dataclass
class _Tags:
    """Goes through the ways to read a text in tags, but not forever: texts may imitate tags a thousand times."""

    text: str
    tried: int = 0

    def ways(self, begin: int, most: int) -> Iterator[list[tuple[str, str]]]:
        """All ways from a position on, with at most so many tags."""
        opened = _TAG.match(self.text, begin)
        if opened is None or most == 0:
            return
        closing = f"\n</{opened[1]}>"
        position = self.text.find(closing, opened.end())
        while position >= 0 and self.tried <= _MOST_TRIES:
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
    """The question, the reference, and what is left over."""
    left = list(inputs)
    question = next((tagged for tagged in left if tagged[0].lower() in _QUESTIONS), None)
    if question is None:
        question = next((tagged for tagged in left if tagged[0].lower() not in _REFERENCES), left[0])
    left.remove(question)
    reference = next((tagged for tagged in left if tagged[0].lower() in _REFERENCES), None)
    if reference is not None:
        left.remove(reference)
    return question[1], None if reference is None else reference[1], tuple(left) or None


def _text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    assert task.scale is not None
    low, high = task.scale
    if task.kind == "label":
        score = format_number(high if is_fulfilled(result) else low)
    else:
        score = grade_text(result, task.scale, whole=True)
    words = scores_and_reason(result, room_for_words(request, _MARKUP)) or "See the score."
    return f"<feedback>\n{words}\n</feedback>\n<score>\n{score}\n</score>"


DIALECTS: tuple[Dialect, ...] = (
    Dialect(name="flowjudge", recognise=_recognise, render=each_reply(_text), templates=(_PROMPT,)),
)
