"""Reviews with two scores: Vicuna's and QLoRA's, joined by the ids of the answers, and those of Cherry LLM."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from judgelm.data.formats.reviews import NEEDS, Review, group_files, match_orders, read_reviews
from judgelm.data.judgments.base import (
    GIVEN,
    SWAPPED,
    JudgmentFormat,
    Order,
    PublishedJudgment,
    location_of,
    pair_judgment,
    rows_reader,
    scored_game,
)
from judgelm.data.readers.fields import content_id, field_error, scores_field, text_field
from judgelm.data.readers.rejects import OnReject
from judgelm.data.readers.rows import Row

_UNREADABLE = (-1.0, -1.0)


def _reviews(files: Sequence[str], on_reject: OnReject) -> Iterator[PublishedJudgment]:
    """Reviews of both orders where the files hold both, else of the order in them."""
    for indices in group_files([(Path(path).stem, Path(path)) for path in files]):
        reviews = [review for index in indices for review in read_reviews(files[index], on_reject=on_reject)]
        pairs, alone = match_orders(reviews)
        for orders in [*pairs, *((review,) for review in alone)]:
            yield _of_orders(orders)


def _of_orders(reviews: Sequence[Review]) -> PublishedJudgment:
    """The judgment of one or two reviews of the same answers, the order of the first being the given one."""
    first = reviews[0]
    games = [
        scored_game(order, review.scores, review.text) for review, order in zip(reviews, (GIVEN, SWAPPED), strict=False)
    ]
    fields = {"question_id": first.question, "answer1_id": first.answers[0], "answer2_id": first.answers[1]}
    return PublishedJudgment(
        judgment=pair_judgment(first.id or ":".join(fields.values()), games),
        judge=None,
        fields=fields | {"review_id": first.id},
        location=first.location,
    )


_CHERRY_NEEDS = ("Answer1", "Answer2", "scores", "scores_reverse", "review", "review_reverse")
_CHERRY_QUESTIONS = ("text", "prompt", "instruction", "Instruction")


def _cherry(row: Row) -> PublishedJudgment:
    """One question with its reviews in both orders; LIMA's is a list of turns, the first of which is the question."""
    needs = ", ".join(_CHERRY_NEEDS)
    turns = row.data.get("conversations")
    name = next((name for name in _CHERRY_QUESTIONS if isinstance(row.data.get(name), str)), None)
    if name is None and not (isinstance(turns, list) and turns and isinstance(turns[0], str)):
        raise field_error(row, "text", f"no question; each row needs {', '.join(_CHERRY_QUESTIONS)} or conversations")
    question = str(turns[0]) if name is None and isinstance(turns, list) else text_field(row, name or "text", needs)
    answers = text_field(row, "Answer1", needs), text_field(row, "Answer2", needs)
    orders: tuple[tuple[Order, str], ...] = ((GIVEN, ""), (SWAPPED, "_reverse"))
    games = []
    for order, suffix in orders:
        scores = scores_field(row, f"scores{suffix}")
        text = text_field(row, f"review{suffix}", needs)
        games.append(scored_game(order, None if scores == _UNREADABLE else scores, text))
    return PublishedJudgment(
        judgment=pair_judgment(content_id(question, answers, None), games),
        judge=None,
        fields=row.data,
        texts=(question, *answers),
        location=location_of(row),
    )


_MEAN = {"name": "pair", "order_rule": "mean"}
REVIEWS = JudgmentFormat(
    name="reviews",
    files="review files of Vicuna or QLoRA; X-vs-Y and Y-vs-X are the two orders of one pair of models",
    needs=(*NEEDS, "text"),
    source="lm-sys/FastChat, fastchat/eval/table/review (2023), and artidoro/qlora, eval/ratings-gpt4; scores are in "
    "the order shown",
    read=_reviews,
    mode=_MEAN,
)
CHERRY = JudgmentFormat(
    name="cherry",
    files="logs/X-VS-Y/DATASET_wrap_reviews_gpt4.json",
    needs=_CHERRY_NEEDS,
    source="Cherry LLM (Li et al. 2023), tianyi-lab/Cherry_LLM, logs/ and evaluation/generation/eval.py; scores are in "
    "the order shown",
    read=rows_reader(_CHERRY_NEEDS, _cherry),
    mode=_MEAN,
)
