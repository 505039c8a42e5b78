"""Converts a judgment to the result of a client's task."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from judgelm.dialects.contract import JudgeResult, JudgeTask
from judgelm.parsing.scores import MIN_ASSIGNED, likeliest_winner
from judgelm.records import GradeDistribution, Judgment, PairDistribution, Shown

_LOWEST, _HIGHEST = 1.0, 10.0
_DIGITS = 9
"""Round to this many decimals, so that float noise cannot flip a verdict at 0.5 or at a client's threshold."""

_ABSTAINED = "the judge abstained; this reply is only the likelier answer"

Line = tuple[tuple[float, ...], float]
"""Scores in the client's order of answers, and their probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PromptScores:
    """Scores from one prompt, in the client's order of answers.

    Attributes:
        lines: score lines with their probabilities, which need not sum to 1.
        note: explains why there is only one score line; empty for a distribution.
    """

    lines: tuple[Line, ...]
    expected: tuple[float, ...]
    first_better: float = 0.5
    tie: float = 0.0
    note: str = ""


def judge_result(task: JudgeTask, judgment: Judgment, *, scale: tuple[float, float], draws: int) -> JudgeResult:
    """Compute the result of a task. The judgment must have a verdict; its `sample_id` seeds the draws."""
    prompts = [_of_words(judgment, scale)] if judgment.reads_words else []
    prompts = prompts or [_prompt_scores(shown) for shown in judgment.shown if shown.scores is not None]
    notes = [task.doubt, *(scores.note for scores in prompts), _ABSTAINED if judgment.abstained else ""]
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
    """Verdict words have no scores, so use the ends of the scale, weighted by P(first better)."""
    assert judgment.scores is not None, "checked before"
    if judgment.probability is None:
        return _PromptScores(lines=((judgment.scores, 1.0),), expected=judgment.scores)
    low, high = scale
    first = judgment.probability
    scores = judgment.scores
    if any(len(shown.order) == 1 and shown.grades is None for shown in judgment.shown):  # rewards are not on a scale
        scores = (low + (high - low) * first, high - (high - low) * first)
    return _PromptScores(lines=(((high, low), first), ((low, high), 1 - first)), expected=scores, first_better=first)


def _prompt_scores(shown: Shown) -> _PromptScores:
    assert shown.scores is not None, "filtered by the caller"
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
        note=_line_note(shown, distribution),
    )


def _line_note(shown: Shown, distribution: PairDistribution | GradeDistribution | None) -> str:
    if distribution is not None:
        share = 1 - distribution.unassigned
        return f"the total probability of all score lines is only {share:.2g}; used the generated score line instead"
    if len(shown.order) > 2:
        return "for three or more answers, only the generated score line is used, without probabilities"
    return "the engine does not return probabilities; only the generated score line is used"


def _of_pair(shown: Shown, distribution: PairDistribution) -> _PromptScores:
    swapped = shown.order == (1, 0)
    first, second = distribution.expected
    listed = [(s1, s2, share) for s1, s2, share in distribution.likeliest] or [(first, second, 1.0)]
    total = fsum(share for _, _, share in listed)
    return _PromptScores(
        lines=tuple(((s2, s1) if swapped else (s1, s2), share / total) for s1, s2, share in listed),
        expected=(second, first) if swapped else (first, second),
        first_better=1 - distribution.first_better if swapped else distribution.first_better,
        tie=distribution.tie,
    )


def _of_grades(distribution: GradeDistribution) -> _PromptScores:
    listed = distribution.likeliest or ((distribution.expected, 1.0),)
    total = fsum(share for _, share in listed)
    return _PromptScores(
        lines=tuple(((score,), share / total) for score, share in listed), expected=(distribution.expected,)
    )


def _notes(shown: Shown) -> list[str]:
    notes = [f"answer truncated from {cut.tokens_before} to {cut.tokens_after} tokens" for cut in shown.truncations]
    distribution = shown.distribution or shown.grades
    if distribution is not None and distribution.approximation:
        notes.append(f"the probabilities are approximate: {distribution.approximation}")
    if (failure := shown.reason_failure) is not None:
        why = failure.why or failure.text
        notes.append(f"the judge did not return a valid reason: {failure.code}{f', {why}' if why else ''}")
    return notes


def _on_ten(lines: Iterable[Line], scale: tuple[float, float]) -> tuple[Line, ...]:
    shares: dict[tuple[float, ...], float] = {}
    for scores, share in lines:
        line = tuple(_to_ten(score, scale) for score in scores)
        shares[line] = shares.get(line, 0.0) + share
    total = fsum(shares.values())
    return tuple(
        sorted(((scores, share / total) for scores, share in shares.items()), key=lambda line: (-line[1], line[0]))
    )


def _to_ten(score: float, scale: tuple[float, float]) -> float:
    low, high = scale
    return round(_LOWEST + (score - low) / (high - low) * (_HIGHEST - _LOWEST), _DIGITS)


def _mean(values: Sequence[float]) -> float:
    return round(fsum(values) / len(values), _DIGITS)


def _drawn(lines: Sequence[Line], seed: str, count: int) -> tuple[tuple[float, ...], ...]:
    draw = random.Random(f"draws {seed}")
    return tuple(draw.choices([scores for scores, _ in lines], [share for _, share in lines], k=count))
