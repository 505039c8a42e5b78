"""Other tasks."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from judgelm.data.labelled_pair import LabelledPair, score_line, training_scores, uniform_hash
from judgelm.data.plain_rows import json_scores
from judgelm.data.readers.values import content_id
from judgelm.errors import ConfigError
from judgelm.parsing.scores import score_lines
from judgelm.prompts.catalog import Template
from judgelm.prompts.truncation import chat_messages

MIN_ANSWERS, MAX_ANSWERS = 3, 4
"""Answers in a row of several."""


def single_row(pair: LabelledPair, *, seed: int) -> dict[str, Any] | None:
    """One of the two answers, with the score that it got in the judgment made with the reference.

    The teacher scored both answers together and did not see the reference as an answer with full marks, as the row
    shows it. The reason is about both answers and is left out.

    Args:
        pair: a clean pair with its answers as the source has them; which place is drawn depends on its id alone.
        seed: another seed draws anew.

    Returns:
        A plain row of `answer`, `score` and `reference`; None where nothing was judged with a reference.
    """
    sample, label = pair.sample, pair.referenced
    if sample.reference is None or label is None or label.scores is None:
        return None
    index = int(uniform_hash(seed, sample.id, "single") * 2)
    return {
        "id": f"{sample.id}:single",
        "question": sample.question,
        "answer": sample.answers[index],
        "score": json_scores(label.scores)[index],
        "reference": sample.reference,
        "answer_models": [sample.answer_models[index]] if sample.answer_models else None,
        "category": sample.category,
        "source": pair.source,
    }


def multi_rows(
    pairs: Iterable[LabelledPair], *, seed: int, scale: tuple[float, float] = (1, 10), step: float = 1
) -> Iterator[dict[str, Any]]:
    """Three or four answers to one question, out of pairs of one source that were judged without reference.

    An answer's score is the mean of those that it got, on the nearest step of the scale, the higher of two as near.
    The scores come from different pairs: an answer compared with weak ones may rank above a better one compared with
    strong ones. There is no reason. Each answer is in at most one row; of five answers one is left out.

    Args:
        pairs: clean pairs of one question; those of another source or other words of the question stay apart.
            Answers are the same where their texts are.
        seed: another seed puts other answers together.
        scale: lowest and highest score.
        step: spacing of the scores.

    Returns:
        Plain rows of `answers` and `scores`, named by the first id of their question's pairs, in text order.

    Raises:
        ConfigError: the step does not fit the scale.
    """
    values = score_lines(scale, step).values
    groups: dict[tuple[str, str], list[LabelledPair]] = defaultdict(list)
    for pair in sorted(pairs, key=lambda pair: pair.sample.id):
        if pair.plain is not None and pair.plain.scores is not None:
            groups[pair.source, pair.sample.question].append(pair)
    for group in groups.values():
        yield from _rows_of(group, seed, values)


def _rows_of(pairs: Sequence[LabelledPair], seed: int, values: tuple[float, ...]) -> Iterator[dict[str, Any]]:
    first = pairs[0]
    scores_of: dict[str, list[float]] = defaultdict(list)
    models: dict[str, str | None] = {}
    for pair in pairs:
        assert pair.plain is not None, "the caller has left out those without"
        for answer, score in zip(pair.sample.answers, pair.plain.scores or (), strict=True):
            scores_of[answer].append(score)
        for answer, model in zip(pair.sample.answers, pair.sample.answer_models or (None, None), strict=True):
            models.setdefault(answer, model)
    question = first.sample.question
    drawn = iter(
        sorted(
            scores_of, key=lambda answer: (uniform_hash(seed, content_id(question, (answer,), None), "multi"), answer)
        )
    )
    for row_number, size in enumerate(_sizes(len(scores_of)), 1):
        answers = [next(drawn) for _ in range(size)]
        names = [models[answer] for answer in answers]
        yield {
            "id": f"{first.sample.id}:multi{row_number}",
            "question": question,
            "answers": answers,
            "scores": json_scores(tuple(_mean_on(values, scores_of[answer]) for answer in answers)),
            "answer_models": None if None in names else names,
            "category": first.sample.category,
            "source": first.source,
        }


def _sizes(answers: int) -> list[int]:
    """Number of answers of each row: 3 -> 3; 5 -> 4; 7 -> 4, 3; 10 -> 4, 3, 3."""
    rows = min(math.ceil(answers / MAX_ANSWERS), answers // MIN_ANSWERS)
    shared = min(answers, rows * MAX_ANSWERS)
    return [shared // rows + (row < shared % rows) for row in range(rows)]


def _mean_on(values: tuple[float, ...], scores: list[float]) -> float:
    """The value nearest to the mean of the scores; of two equally near values the higher."""
    mean = math.fsum(scores) / len(scores)
    return min(values, key=lambda value: (abs(value - mean), -value))


def chat_rows(pair: LabelledPair, template: Template, scale: tuple[float, float] = (1, 10)) -> Iterator[dict[str, Any]]:
    """The pair's judgments as conversations, in TRL's conversational prompt-completion format.

    Only the template's own delimiters are sanitized: a tokenizer that reads `<|im_end|>` and the like in a text as
    special is not known here.

    Args:
        pair: a clean pair.
        template: one of chat messages.
        scale: lowest and highest score, for a judgment that has a preference alone.

    Returns:
        `prompt` and `completion`, each a list of messages of `role` and `content`, for the judgment without the
        reference and for that with it.

    Raises:
        ConfigError: the template is plain text.
    """
    if not template.chat:
        raise ConfigError(f"template {template.id} is plain text; a row of messages needs one such as judgelm-chat")
    for label, reference in ((pair.plain, None), (pair.referenced, pair.sample.reference)):
        scores = None if label is None else training_scores(label, scale)
        if label is not None and scores is not None:
            prompt = template.render(pair.sample, (0, 1), reference)
            reply = score_line(scores) + (f"\n{label.reason}" if label.reason else "")
            yield {"prompt": chat_messages(prompt.spans), "completion": [{"role": "assistant", "content": reply}]}
