"""Synthetic judging data: question-answer pairs with a programmatic teacher, as JudgeLM training rows.

A judge of about a million parameters can be trained on it from scratch in minutes, for tests, demos and replications
in small; it says nothing about judging real text. Rows are generated, so any number of distinct rows is available, and
validation shares no question with training by construction.

    >>> row = next(generate(1, seed=0, split="train"))
    >>> row["question_id"]
    'world-train-0-0'
"""

import random
from collections.abc import Iterator
from typing import Literal, get_args

from benchmarks.synthetic.generators import GENERATORS, VICES, Vice, answer
from benchmarks.synthetic.questions import FACTS, KINDS, Kind, draw_question, is_held_out
from benchmarks.synthetic.teacher import TeacherReview, review
from judgelm.errors import ConfigError

__all__ = ["FACTS", "GENERATORS", "KINDS", "SPLITS", "VICES", "Kind", "Split", "Vice", "generate", "is_held_out"]

Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = get_args(Split)

TEACHER_ID = "world-teacher"


def generate(
    n: int, *, seed: int, split: Split, start: int = 0, position_preference: float = 0.0, guessing: bool = False
) -> Iterator[dict[str, object]]:
    """Stream rows `start` to `start + n` of an endless sequence of training rows.

    Args:
        n: how many rows; any size, nothing is held in memory.
        seed: seed of the sequence; not negative. Row i depends on (seed, split, i) and the preference alone.
        split: the side of the questions. Both know the same facts, and no question text is on both sides.
        start: index of the first row, so that workers or phases can take disjoint stretches.
        position_preference: share of pairs in which the teacher gives the first answer a point more where the two are
            within a point of each other. Questions, answers and noise are the same whatever it is.
        guessing: let the teacher guess answers about facts that only a missing reference gives, instead of calling
            them plausible.

    Yields:
        The JudgeLM training row (`question_id`, `question_body`, both answers with model ids and metadata, `score`,
        `text`, `reference`, and the two `..._w_reference`), plus `metadata`: the question's `kind` and the two
        answers' `vices`. Scores are integers from 1 to 10.

    Raises:
        ConfigError: an unknown split, or a negative number.
    """
    if split not in SPLITS:
        raise ConfigError(f"split {split!r} does not exist; choose one of: {', '.join(SPLITS)}")
    if min(n, seed, start) < 0:
        raise ConfigError(f"n={n}, seed={seed}, start={start}: none of them may be negative")
    if not 0 <= position_preference <= 1:
        raise ConfigError(f"position_preference is {position_preference}; it is a share, 0 to 1")
    return _rows(range(start, start + n), seed, split, position_preference, guessing)


def _rows(indices: range, seed: int, split: Split, preference: float, guessing: bool) -> Iterator[dict[str, object]]:
    rng = random.Random()
    for index in indices:
        rng.seed(f"{seed} {split} {index} lean")
        leaning = rng.random() < preference
        rng.seed(f"{seed} {split} {index}")
        yield _row(
            rng,
            f"world-{split}-{seed}-{index}",
            held_out=split == "validation",
            teacher_options={"leaning": leaning, "guessing": guessing},
        )


def _row(
    rng: random.Random, question_id: str, *, held_out: bool, teacher_options: dict[str, bool]
) -> dict[str, object]:
    question = draw_question(rng, held_out=held_out)
    first_model, second_model = rng.sample(GENERATORS, 2)
    first, second = answer(question, first_model, rng), answer(question, second_model, rng)
    without_reference: TeacherReview = review(question, (first, second), rng, with_reference=False, **teacher_options)
    having: TeacherReview = review(question, (first, second), rng, with_reference=True, **teacher_options)
    return {
        "question_id": question_id,
        "question_body": question.text,
        "answer1_body": first.text,
        "answer2_body": second.text,
        "answer1_model_id": first_model.model_id,
        "answer2_model_id": second_model.model_id,
        "answer1_metadata": {"decoding_method": "simulated"},
        "answer2_metadata": {"decoding_method": "simulated"},
        "score": list(without_reference.scores),
        "text": without_reference.text,
        "reference": {"text": question.render(question.parts), "model": TEACHER_ID},
        "score_w_reference": list(having.scores),
        "text_w_reference": having.text,
        "metadata": {"kind": question.kind, "vices": [first.vice, second.vice]},
    }
