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

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, Reply
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.probabilities import is_fulfilled
from judgelm.dialects.recognition import AMBIGUOUS, lone_text, sample_of
from judgelm.dialects.text import expected_grade, format_number, rescale, results_per_reply, scores_and_reason
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


def _recognise(asked: ChatRequest) -> JudgeTask | None:
    text = lone_text(asked)
    found = None if text is None else _PROMPT.split(text)
    scale = None if found is None else _score_places(found.values["rubric"])
    if found is None or scale is None:
        return None
    sample, unclear = _sample(found.values)
    return JudgeTask(
        dialect="flowjudge",
        task="label" if scale == (0.0, 1.0) else "grade",
        sample=sample,
        scale=scale,
        doubt=AMBIGUOUS if unclear or found.ambiguous else "",
    )


def _sample(values: Mapping[str, str]) -> tuple[Sample, bool]:
    """The sample, and whether its tags could be read in another way."""
    criterion = f"{values['criterion']}\n\n{values['rubric']}"
    by_reference = _BY_REFERENCE.split(values["criterion"])
    if by_reference is not None:
        told = by_reference.values["reference"]
        return sample_of(values["inputs"], (values["output"],), told, criterion=criterion), False
    inputs, inputs_unclear = _tagged(values["inputs"])
    outputs, outputs_unclear = _tagged(values["output"])
    question, reference, others = _sorted_inputs(inputs) if inputs else (values["inputs"], None, None)
    # several outputs are judged as the one text that they stand in
    answer = outputs[0][1] if len(outputs) == 1 else values["output"]
    sample = sample_of(question, (answer,), reference, criterion=criterion, inputs=others)
    return sample, inputs_unclear or outputs_unclear


def _score_places(rubric: str) -> tuple[float, float] | None:
    """The lowest and the highest score of a rubric."""
    scores = [float(found[1]) for found in _SCORE.finditer(rubric)]
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
        """All ways from a place on, with so many tags at the most."""
        opened = _TAG.match(self.text, begin)
        if opened is None or most == 0:
            return
        closing = f"\n</{opened[1]}>"
        place = self.text.find(closing, opened.end())
        while place >= 0 and self.tried <= _MOST_TRIES:
            self.tried += 1
            end = place + len(closing)
            one = (opened[1], self.text[opened.end() : place])
            if end == len(self.text):
                yield [one]
            elif self.text.startswith("\n", end):
                for others in self.ways(end + 1, most - 1):
                    yield [one, *others]
            place = self.text.find(closing, place + 1)


def _sorted_inputs(inputs: list[tuple[str, str]]) -> tuple[str, str | None, tuple[tuple[str, str], ...] | None]:
    """The question, the reference, and what is left over."""
    left = list(inputs)
    asking = next((one for one in left if one[0].lower() in _QUESTIONS), None)
    if asking is None:
        asking = next((one for one in left if one[0].lower() not in _REFERENCES), left[0])
    left.remove(asking)
    reference = next((one for one in left if one[0].lower() in _REFERENCES), None)
    if reference is not None:
        left.remove(reference)
    return asking[1], None if reference is None else reference[1], tuple(left) or None


def _render(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    assert case.scale is not None
    low, high = case.scale
    room = None if asked.max_tokens is None else max(0, asked.max_tokens - _MARKUP)
    texts = []
    for one in results_per_reply(asked, finding):
        if case.task == "label":
            score = high if is_fulfilled(one) else low
        else:
            score = rescale(expected_grade(one), (low, high), whole=True)
        words = scores_and_reason(one, room) or "See the score."
        texts.append(f"<feedback>\n{words}\n</feedback>\n<score>\n{format_number(score)}\n</score>")
    return Reply(texts=tuple(texts))


DIALECTS: tuple[Dialect, ...] = (Dialect(name="flowjudge", recognise=_recognise, render=_render),)
