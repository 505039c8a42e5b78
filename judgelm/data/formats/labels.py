"""Labels of each format's rows, for a pair, a single answer or several answers; None where a row has no label."""

import re
from dataclasses import replace

from judgelm.data.formats.samples import plain_answers
from judgelm.data.readers.fields import (
    field_error,
    number_field,
    numbers_field,
    optional_text,
    row_error,
    scores_field,
    winner_field,
)
from judgelm.data.readers.rows import Row
from judgelm.data.soft_preference import rounded_preference, winner_by_preference
from judgelm.modes.pairwise import winner_of
from judgelm.records import Label, Winner

_SCORE_LINE = re.compile(r"\s*(\d+(?:\.\d+)?)[ \t,]+(\d+(?:\.\d+)?)[ \t]*(?:\r?\n\s*|$)")
_PANDALM_WINNERS: dict[object, Winner] = {0: "tie", 1: 1, 2: 2}


def json_scores(scores: tuple[float, ...]) -> list[float]:
    """Scores as files hold them: 8, not 8.0, where they are whole."""
    return [int(score) if score.is_integer() else score for score in scores]


def split_review(text: str) -> tuple[tuple[float, float] | None, str]:
    """A review's leading score line, and the reason after it.

    The separator may be one line end or several. Without a score line the whole text is the reason.
    """
    score_line = _SCORE_LINE.match(text)
    if score_line is None:
        return None, text
    return (float(score_line[1]), float(score_line[2])), text[score_line.end() :]


def judgelm_label(row: Row, with_reference: bool) -> Label | None:
    """JudgeLM's label, with the `preference` of the judgment made without reference; see `_with_preference`.

    JudgeLM's `score` and `text`, or `score_w_reference` and `text_w_reference`.

    A text of `error` and a score of [-1, -1] are the sources' signs of a failed review: no label. Scores are read
    as they are, on any scale. Rows that judgelm wrote of judgments without scores carry a `winner` and a null `score`
    instead: their text is the reason, whatever it begins with.
    """
    label = _judgelm_review(row, with_reference)
    return label if with_reference else _with_preference(row, label)


def _judgelm_review(row: Row, with_reference: bool) -> Label | None:
    suffix = "_w_reference" if with_reference else ""
    text = optional_text(row, f"text{suffix}")
    if not with_reference and row.data.get("score", ...) is None and row.data.get("winner") is not None:
        return Label(sample_id="", winner=winner_field(row), reason=text or None, votes=_votes(row))
    if text is not None and text.strip() == "error":
        return None
    written, reason = (None, "") if text is None else split_review(text)
    if row.data.get(f"score{suffix}") is not None:
        scores: tuple[float, float] | None = scores_field(row, f"score{suffix}")
        if written is not None and scores != written:
            reason = text or ""
    else:
        scores = written
    if scores == (-1.0, -1.0):
        return None
    if scores is not None:
        votes = () if with_reference else _votes(row)
        return Label(sample_id="", winner=winner_of(scores), scores=scores, reason=reason or None, votes=votes)
    if with_reference or row.data.get("winner") is None:
        return None
    return Label(sample_id="", winner=winner_field(row), reason=reason or None, votes=_votes(row))


def _with_preference(row: Row, label: Label | None) -> Label | None:
    """The label with the row's `preference`, P(first answer is better) in [0, 1]; a label of its own without any.

    Raises:
        InputError: it is no such number, or contradicts the row's winner or the order of its scores.
    """
    if row.data.get("preference") in (None, ""):
        return label
    preference = number_field(row, "preference")
    if not 0 <= preference <= 1:
        finding = f"expected P(first answer is better), 0 to 1, got {preference:g}"
        raise field_error(
            row, "preference", f"{finding}; AlpacaEval's 1 to 2 is read beside output_1 and output_2 only"
        )
    preference = rounded_preference(preference)
    winner = winner_by_preference(preference)
    if label is None:
        return Label(sample_id="", winner=winner, preference=preference)
    if label.winner != winner and (label.scores is None or "tie" not in (label.winner, winner)):
        raise field_error(row, "preference", f"{preference:g} contradicts the winner {label.winner}; correct one")
    return replace(label, preference=preference)


def _votes(row: Row) -> tuple[Winner, ...]:
    votes = row.data.get("votes")
    if votes is None:
        return ()
    if not isinstance(votes, list):
        raise field_error(row, "votes", 'expected a list of 1, 2 and "tie"')
    return tuple(winner_field(Row(row.file, row.line, {"votes": vote}), "votes") for vote in votes)


def pandalm_label(row: Row, with_reference: bool) -> Label | None:
    """The majority of `annotator1`, `annotator2`, ...: 0 is a tie. No label without votes or without a majority."""
    votes: list[Winner] = []
    while (name := f"annotator{len(votes) + 1}") in row.data:
        vote = row.data[name]
        if isinstance(vote, bool) or not isinstance(vote, int) or vote not in _PANDALM_WINNERS:
            raise field_error(row, name, f"expected 0 (tie), 1 or 2, got {vote!r}")
        votes.append(_PANDALM_WINNERS[vote])
    for winner in _PANDALM_WINNERS.values():
        if 2 * votes.count(winner) > len(votes):
            return Label(sample_id="", winner=winner, votes=tuple(votes))
    return None


def pandalm_train_label(row: Row, with_reference: bool) -> Label | None:
    """PandaLM's `outputs.evaluation_result` ("1", "2" or "Tie") and `evaluation_reason`."""
    outputs = row.data.get("outputs")
    if not isinstance(outputs, dict):
        raise field_error(row, "outputs", "expected an object with evaluation_result; see the PandaLM training set")
    if outputs.get("evaluation_result") is None:
        return None
    inner = Row(row.file, row.line, outputs)
    result = outputs["evaluation_result"]
    cleaned = Row(row.file, row.line, {"evaluation_result": result.strip() if isinstance(result, str) else result})
    reason = optional_text(inner, "evaluation_reason")
    return Label(sample_id="", winner=winner_field(cleaned, "evaluation_result"), reason=reason or None)


def alpaca_eval_label(row: Row, with_reference: bool) -> Label | None:
    """AlpacaEval's `preference`: 1 is the first output, 2 the second, 1.5 (and the older 0) a tie.

    The label's preference is 2 less this number, P(first is better); the winner is the output that it prefers.
    """
    preference = row.data.get("preference")
    if preference is None:
        return None
    if (
        isinstance(preference, bool)
        or not isinstance(preference, int | float)
        or not (preference == 0 or 1 <= preference <= 2)
    ):
        raise field_error(row, "preference", f"expected a number from 1 to 2, or 0 for a tie, got {preference!r}")
    first_better = 0.5 if preference == 0 else rounded_preference(2.0 - preference)
    return Label(sample_id="", winner=winner_by_preference(first_better), preference=first_better)


def llmbar_label(row: Row, with_reference: bool) -> Label | None:
    """LLMBar's `label`: 1 or 2."""
    return None if row.data.get("label") is None else Label(sample_id="", winner=winner_field(row, "label"))


def plain_label(row: Row, with_reference: bool) -> Label | None:
    """A pair's label, or the `score` of one answer, the `scores` of three and more; with `reason`.

    Of a pair `preference` is read too: P(first answer is better), in [0, 1].
    """
    count = len(plain_answers(row))
    if count == 2:
        return _with_preference(row, plain_pair_label(row, with_reference))
    if row.data.get("winner") not in (None, ""):
        raise field_error(row, "winner", f"names one of two answers, and this row has {count}; write scores, one each")
    numbered = [f"score_{index}" for index in range(1, count + 1)]
    name = next((name for name in ("score", "scores") if row.data.get(name) not in (None, "")), None)
    if name is not None:
        scores = numbers_field(row, name, count)
    elif any(row.data.get(name) not in (None, "") for name in numbered):
        scores = tuple(number_field(row, name) for name in numbered)
    else:
        return None
    return Label(sample_id="", winner=None, scores=scores, reason=optional_text(row, "reason") or None)


def plain_pair_label(row: Row, with_reference: bool) -> Label | None:
    """`winner`, and `score` or `scores`, or `score_1` and `score_2` (or `_a` and `_b`); with `reason`.

    The winner may be left out where there are scores.
    """
    scores = _plain_scores(row)
    reason = optional_text(row, "reason") or None
    if row.data.get("winner") in (None, ""):
        return None if scores is None else Label(sample_id="", winner=winner_of(scores), scores=scores, reason=reason)
    winner = winner_field(row)
    if scores is not None and winner_of(scores) != winner:
        raise row_error(row, f"winner {winner} contradicts the scores {scores[0]:g} and {scores[1]:g}; correct one")
    return Label(sample_id="", winner=winner, scores=scores, reason=reason, votes=_votes(row))


def _plain_scores(row: Row) -> tuple[float, float] | None:
    for name in ("score", "scores"):
        if row.data.get(name) not in (None, ""):
            return scores_field(row, name)
    for first, second in (("score_1", "score_2"), ("score_a", "score_b")):
        if not all(row.data.get(name) in (None, "") for name in (first, second)):
            return number_field(row, first), number_field(row, second)
    return None


def any_label(row: Row, with_reference: bool) -> Label | None:
    """The label of a row without answers, from any of the documented fields."""
    if with_reference or row.data.get("text") is not None:
        return judgelm_label(row, with_reference)
    if row.data.get("annotator1") is not None:
        return pandalm_label(row, with_reference)
    if row.data.get("preference") is not None:
        return alpaca_eval_label(row, with_reference)
    if row.data.get("label") is not None:
        return llmbar_label(row, with_reference)
    label = plain_pair_label(row, with_reference)
    return None if label is not None and label.scores == (-1.0, -1.0) else label
