"""Create rows for other tasks from clean pairs: one answer, three or four answers, and chat.

You can train on pairs and rows with one or several answers together; chat rows are for other trainers. Source: JudgeLM,
Figures 5 and 6.
"""

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
"""The allowed numbers of answers in a row with several answers."""


def single_row(pair: LabelledPair, *, seed: int) -> dict[str, Any] | None:
    """Return one answer with its score from the judgment made with the reference, or None if there is no such judgment.

    The reason is dropped, because it is about both answers.
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
    """Yield rows with three or four answers to a question, from pairs of the same source judged without a reference.

    An answer's scores are averaged and rounded half up to the nearest step of the scale. Each answer is used at most
    once; a fifth answer is dropped.
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
        assert pair.plain is not None, "the caller has removed pairs without it"
        for answer, score in zip(pair.sample.answers, pair.plain.scores or (), strict=True):
            scores_of[answer].append(score)
        for answer, model in zip(pair.sample.answers, pair.sample.answer_models or (None, None), strict=True):
            models.setdefault(answer, model)
    question = first.sample.question
    hashes = {answer: uniform_hash(seed, content_id(question, (answer,), None), "multi") for answer in scores_of}
    drawn = iter(sorted(scores_of, key=lambda answer: (hashes[answer], answer)))
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
    rows = min(math.ceil(answers / MAX_ANSWERS), answers // MIN_ANSWERS)
    shared = min(answers, rows * MAX_ANSWERS)
    return [shared // rows + (row < shared % rows) for row in range(rows)]


def _mean_on(values: tuple[float, ...], scores: list[float]) -> float:
    mean = math.fsum(scores) / len(scores)
    return min(values, key=lambda value: (abs(value - mean), -value))


def chat_rows(pair: LabelledPair, template: Template, scale: tuple[float, float] = (1, 10)) -> Iterator[dict[str, Any]]:
    """Yield a pair's judgments as `prompt` and `completion` messages, in TRL's conversational format.

    `scale` is used to compute scores for judgments that only have a preference. Only the template's delimiters are
    sanitised, because the trainer's special tokens are unknown.
    """
    if not template.chat:
        raise ConfigError(
            f"template {template.id} is a plain-text template; chat rows require a chat template such as judgelm-chat"
        )
    for label, reference in ((pair.plain, None), (pair.referenced, pair.sample.reference)):
        scores = None if label is None else training_scores(label, scale)
        if label is not None and scores is not None:
            prompt = template.render(pair.sample, (0, 1), reference)
            reply = score_line(scores) + (f"\n{label.reason}" if label.reason else "")
            yield {"prompt": chat_messages(prompt.spans), "completion": [{"role": "assistant", "content": reply}]}
