"""Tasks for the judge, and its results: from JSON or from a client's task to a mode task, and from a judgment back.

A mode task is a sample, the mode that judges it and the mode's options:

    {"mode": "pair", "options": {"both_orders": true}, "question": "...", "answer_1": "...", "answer_2": "..."}

The other fields are those of any row that judgelm-batch reads. Texts beside the question in a client's prompt (a
criterion, a context) are put under headings in the question that the judge reads; in a dialogue, in its last turn. The
judge's own scale becomes 1 to 10 in a result. Pure: nothing is judged here.
"""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from typing import Any

from judgelm.data.readers.rows import Row
from judgelm.data.samples import allows_count, count_range_text
from judgelm.data.sources.registry import recognise
from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, digest
from judgelm.errors import InputError
from judgelm.modes import BatchMode
from judgelm.parsing.scores import MIN_ASSIGNED
from judgelm.records import GradeDistribution, Judgment, PairDistribution, Sample, Shown, Winner

_SOURCE = "question"
_OWN = ("mode", "options")
_MOST_REPEATS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeTask:
    """A sample and the mode that judges it.

    Attributes:
        sample: to be judged.
        mode: key of `judgelm.modes.MODES`.
        options: fields of the mode, as JSON has them: `both_orders`, `distribution`, `reasons`, `order_rule`, ...
    """

    sample: Sample
    mode: str = "pair"
    options: Mapping[str, Any] = field(default_factory=dict)


def read_task(body: Mapping[str, Any]) -> ModeTask:
    """A mode task from a JSON object.

    Args:
        body: `mode` (without it `pair`), `options` (without them the mode's defaults), and a row's fields. Images are
            taken as `data:` URLs alone: files on the server, or in its reach, are not the client's.

    Raises:
        InputError: a field is missing or wrong; the message names it.
    """
    mode, options = body.get("mode", "pair"), body.get("options")
    if not isinstance(mode, str):
        raise InputError(f'field "mode": expected the name of a mode, got {json.dumps(mode)}')
    if options is not None and not isinstance(options, Mapping):
        raise InputError('field "options": expected an object of the mode\'s options, such as {"both_orders": true}')
    options = options or {}
    for name, noun in (("permutations", "orders"), ("solves", "self-answers")):
        repeats = options.get(name)
        if isinstance(repeats, int | float) and repeats > _MOST_REPEATS:
            most = f"a server asks for at most {_MOST_REPEATS} {noun}"
            raise InputError(f'field "options": {name} is {str(repeats)[:40]}; {most}')
    row = Row(_SOURCE, 1, {name: value for name, value in body.items() if name not in _OWN})
    try:
        known = recognise(row)
        if known.note:
            raise InputError(known.note)
        assert known.sample is not None
        sample = known.sample(row)
    except InputError as error:
        raise InputError(str(error).removeprefix(f"{_SOURCE}:1: ")) from error
    if not all(image.startswith("data:") for image in sample.images):
        raise InputError('field "images": a server takes images as data: URLs alone, data:image/png;base64,...')
    return ModeTask(sample=sample, mode=mode, options=dict(options))


def checked_sample(sample: Sample, mode: BatchMode) -> Sample:
    """The sample as the mode takes it: number of answers checked, reference kept or dropped by the mode's policy.

    Raises:
        InputError: the mode cannot judge it.
    """
    if not allows_count(len(sample.answers), mode.answers):
        raise InputError(f"mode {mode.name}: expected {count_range_text(mode.answers)}, got {len(sample.answers)}")
    if mode.reference == "use" and sample.reference is None:
        raise InputError(f'mode {mode.name}: field "reference" is missing, which it judges by')
    if mode.reference == "ignore":
        sample = replace(sample, reference=None)
    mode.check(sample)
    return sample


REASON_TOKENS = 256
"""Room for a reason; replies contain 600 characters of it."""

_LEAST_WORDS = 20
"""Fewer words of a reason are not worth its decoding."""

_NOT_TEXT = ("turns", "batch")
_HEADINGS = {"criterion": "Evaluation criterion"}


def mode_tasks(task: JudgeTask, *, both_orders: bool = False, reasons: bool = False) -> tuple[ModeTask, ...]:
    """The mode tasks for a task: none for one to prepare, one for each pair of a batch, else one.

    Args:
        task: of the client.
        both_orders: show a pair in both orders, and each of three and more answers once at each position.
        reasons: have the judge give its reason.
    """
    if task.kind == "prepare":
        return ()
    samples = task.facts.get("batch", (task.sample,))
    options = {"reasons": "all", "reason_tokens": REASON_TOKENS} if reasons else {}
    return tuple(_mode_task(task, _judge_sample(sample), options, both_orders=both_orders) for sample in samples)


def headed_question(sample: Sample) -> str:
    """The question with all texts beside it under headings, the criterion last; those of `inputs` by their names.

    A sample with nothing beside its question has the question's bytes.
    """
    parts = [sample.question] if sample.question else []
    for name in sorted(sample.metadata, key=lambda name: name == "criterion"):
        value = sample.metadata[name]
        if name not in _NOT_TEXT:
            titled = value if isinstance(value, tuple) else [(name, value)]
            parts += [f"{_heading(title)}:\n{text}" for title, text in titled]
    return "\n\n".join(parts)


def has_room_for_reason(dialect: Dialect, task: JudgeTask, request: ChatRequest) -> bool:
    """True where a reply would contain the judge's own words: tried by rendering a made-up result with words.

    That reply is not sent.
    """
    if task.kind == "prepare" or "batch" in task.facts:
        return False
    count = len(task.sample.answers)
    scores = tuple(float(5 + index) for index in range(min(count, 2))) + (5.0,) * (count - 2)
    made_up = JudgeResult(
        winner=2 if count == 2 else None,
        scores=scores,
        first_better=0.0 if count == 2 else None,
        tie=0.0 if count == 2 else None,
        grades=((5.0, 1.0),),
        correct=1.0,
        reason="zqz " * 2 * _LEAST_WORDS,
    )
    reply = dialect.render(task, replace(request, n=1, logprobs=False), made_up)
    return "".join((*reply.texts, reply.arguments)).count("zqz") >= _LEAST_WORDS


def _mode_task(task: JudgeTask, sample: Sample, reasons: Mapping[str, Any], *, both_orders: bool) -> ModeTask:
    if task.kind == "choice":
        orders = {"permutations": len(sample.answers)} if both_orders else {}
        return ModeTask(sample=sample, mode="multi", options={**orders, **reasons})
    options: dict[str, Any] = {"distribution": True, **reasons}
    if task.kind == "pair" and both_orders:
        options["both_orders"] = True
    if "turns" in sample.metadata:  # a client sends each turn by itself
        return ModeTask(sample=sample, mode="conversation", options=options | {"turns": "last"})
    return ModeTask(sample=sample, mode="pair" if task.kind == "pair" else "single", options=options)


def _judge_sample(sample: Sample) -> Sample:
    """The sample for the judge, its id made of all its texts."""
    question = headed_question(sample)
    turns = [
        {"question": turn["question"], "answers": list(turn["answers"]), "reference": turn.get("reference")}
        for turn in _turns(sample)
    ]
    if turns:
        turns[-1]["question"] = question
    texts = [question, *sample.answers, str(sample.reference), str(turns)]
    return Sample(
        id=digest("\0".join(texts))[:16],
        question=question,
        answers=sample.answers,
        reference=sample.reference,
        metadata={"turns": turns} if turns else {},
    )


def _turns(sample: Sample) -> tuple[Mapping[str, Any], ...]:
    turns = sample.metadata.get("turns", ())
    assert isinstance(turns, tuple | list), "dialects give turns in a row"
    return tuple(turns)


def _heading(name: str) -> str:
    return _HEADINGS.get(name, name.replace("_", " ").capitalize())


_LOWEST, _HIGHEST = 1.0, 10.0
_DIGITS = 9
"""Of probabilities and scores: no noise of floats where a half, or a client's limit, decides."""

Line = tuple[tuple[float, ...], float]
"""Scores in the order that the client shows, and their probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PromptScores:
    """Scores of one prompt, in the order that the client shows.

    Attributes:
        lines: score lines with their probabilities, which need not sum to 1.
        expected: mean of each answer's score.
        first_better: P(the first is better), ties counted half; of a pair.
        tie: P(both have the same score); of a pair.
        note: why this is the score line alone; empty where it is a distribution.
    """

    lines: tuple[Line, ...]
    expected: tuple[float, ...]
    first_better: float = 0.5
    tie: float = 0.0
    note: str = ""


def judge_result(task: JudgeTask, judgment: Judgment, *, scale: tuple[float, float], draws: int) -> JudgeResult:
    """The result of a task, from a judgment with a verdict.

    Args:
        task: of the client.
        judgment: of the mode task that `mode_tasks` made of it; its `sample_id` seeds the draws.
        scale: lowest and highest score of the judge.
        draws: number of score lines to draw.
    """
    prompts = [_of_words(judgment, scale)] if judgment.reads_words else []
    prompts = prompts or [_prompt_scores(shown) for shown in judgment.shown if shown.scores is not None]
    notes = [task.doubt, *(scores.note for scores in prompts)]
    notes += [note for shown in judgment.shown for note in _notes(shown)]
    lines = _on_ten((line for scores in prompts for line in scores.lines), scale)
    columns = zip(*(scores.expected for scores in prompts), strict=True)
    expected = tuple(_to_ten(_mean(column), scale) for column in columns)
    pair = len(expected) == 2
    first_better = _mean([scores.first_better for scores in prompts]) if pair else None
    tie = _mean([scores.tie for scores in prompts]) if pair else None
    single = task.kind in ("grade", "label")
    above = [share for scores, share in lines if scores[0] > (_LOWEST + _HIGHEST) / 2]
    return JudgeResult(
        winner=None if first_better is None or tie is None else likeliest_winner(first_better, tie),
        scores=expected,
        first_better=first_better,
        tie=tie,
        draws=_drawn(lines, judgment.sample_id, draws),
        grades=tuple((score, share) for (score,), share in lines) if single else (),
        correct=round(fsum(above), _DIGITS) if single else None,
        reason=judgment.reason,
        notes=tuple(dict.fromkeys(note for note in notes if note)),
    )


def _of_words(judgment: Judgment, scale: tuple[float, float]) -> _PromptScores:
    """Scores of the whole judgment; of a pair, P(first better) stands for the best and the worst score."""
    assert judgment.scores is not None, "checked before"
    if judgment.probability is None:
        return _PromptScores(lines=((judgment.scores, 1.0),), expected=judgment.scores)
    low, high = scale
    first = judgment.probability
    scores = judgment.scores
    if any(len(shown.order) == 1 and shown.grades is None for shown in judgment.shown):  # rewards have no scale
        scores = (low + (high - low) * first, high - (high - low) * first)
    return _PromptScores(lines=(((high, low), first), ((low, high), 1 - first)), expected=scores, first_better=first)


def likeliest_winner(first_better: float, tie: float) -> Winner:
    """The likeliest of three: the first is better, the second is, or a tie; a tie where both are equally likely.

    Args:
        first_better: P(the first is better), ties counted half, in [0, 1].
        tie: P(both have the same score), in [0, 1].
    """
    first, second = first_better - tie / 2, 1 - first_better - tie / 2
    lead = round(first - second, _DIGITS)
    if lead == 0 or round(tie - max(first, second), _DIGITS) > 0:
        return "tie"
    return 1 if lead > 0 else 2


def _prompt_scores(shown: Shown) -> _PromptScores:
    """Scores from a prompt's distribution, or from its score line alone where there is no usable one."""
    assert shown.scores is not None, "a prompt without scores says nothing"
    distribution = shown.distribution or shown.grades
    if distribution is not None and 1 - distribution.unassigned >= MIN_ASSIGNED:
        return _of_pair(shown, distribution) if isinstance(distribution, PairDistribution) else _of_grades(distribution)
    scores = tuple(score for _, score in sorted(zip(shown.order, shown.scores, strict=True)))
    first, last = scores[0], scores[-1]
    return _PromptScores(
        lines=((scores, 1.0),),
        expected=scores,
        first_better=0.5 if first == last else float(first > last),
        tie=float(first == last),
        note=_why_alone(shown, distribution),
    )


def _why_alone(shown: Shown, distribution: PairDistribution | GradeDistribution | None) -> str:
    if distribution is not None:
        share = 1 - distribution.unassigned
        return f"score lines have {share:.2g} of the probability together; the one written stands for all"
    if len(shown.order) > 2:
        return "three and more answers are judged by the score line alone, without probabilities"
    return "the engine gives no probabilities; the score line written stands for all"


def _of_pair(shown: Shown, distribution: PairDistribution) -> _PromptScores:
    swapped = shown.order == (1, 0)
    first, second = distribution.expected
    listed = [(s1, s2, share) for s1, s2, share in distribution.likeliest] or [(first, second, 1.0)]
    whole = fsum(share for _, _, share in listed)
    return _PromptScores(
        lines=tuple(((s2, s1) if swapped else (s1, s2), share / whole) for s1, s2, share in listed),
        expected=(second, first) if swapped else (first, second),
        first_better=1 - distribution.first_better if swapped else distribution.first_better,
        tie=distribution.tie,
    )


def _of_grades(distribution: GradeDistribution) -> _PromptScores:
    listed = distribution.likeliest or ((distribution.expected, 1.0),)
    whole = fsum(share for _, share in listed)
    return _PromptScores(
        lines=tuple(((score,), share / whole) for score, share in listed), expected=(distribution.expected,)
    )


def _notes(shown: Shown) -> list[str]:
    """Notes on truncated answers, inexact probabilities and a missing reason."""
    notes = [f"an answer was cut from {cut.tokens_before} to {cut.tokens_after} tokens" for cut in shown.truncations]
    distribution = shown.distribution or shown.grades
    if distribution is not None and distribution.approximation:
        notes.append(f"the probabilities are not exact: {distribution.approximation}")
    if (lack := shown.reason_failure) is not None:
        notes.append(f"the judge's reason: {lack.code}{f', {lack.why or lack.text}' if lack.why or lack.text else ''}")
    return notes


def _on_ten(lines: Iterable[Line], scale: tuple[float, float]) -> tuple[Line, ...]:
    """The lines of all prompts on 1 to 10, equal ones put together, likeliest first; their probabilities sum to 1."""
    shares: dict[tuple[float, ...], float] = {}
    for scores, share in lines:
        line = tuple(_to_ten(score, scale) for score in scores)
        shares[line] = shares.get(line, 0.0) + share
    whole = fsum(shares.values())
    return tuple(
        sorted(((scores, share / whole) for scores, share in shares.items()), key=lambda line: (-line[1], line[0]))
    )


def _to_ten(score: float, scale: tuple[float, float]) -> float:
    low, high = scale
    return round(_LOWEST + (score - low) / (high - low) * (_HIGHEST - _LOWEST), _DIGITS)


def _mean(values: Sequence[float]) -> float:
    return round(fsum(values) / len(values), _DIGITS)


def _drawn(lines: Sequence[Line], seed: str, count: int) -> tuple[tuple[float, ...], ...]:
    """Score lines by their probabilities; the first ones stay the same when more are drawn."""
    draw = random.Random(f"draws {seed}")
    return tuple(draw.choices([scores for scores, _ in lines], [share for _, share in lines], k=count))
