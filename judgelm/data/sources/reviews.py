"""Read judges' reviews, and convert replies to judgments."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from operator import attrgetter
from pathlib import Path

from judgelm.data.readers.files import read_converted
from judgelm.data.readers.rows import OnReject, Row, raise_reject, unique
from judgelm.data.readers.values import describe
from judgelm.data.sources.layouts import split_review
from judgelm.errors import InputError
from judgelm.records import Judgment, PairVerdict, Scores, Shown, TextHashes, Unparsed, Winner, winner_of

NEEDS = ("question_id", "answer1_id", "answer2_id", "score")
_VERSUS = "-vs-"
UNREADABLE = (-1.0, -1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """The review of a pair in one order.

    Attributes:
        answers: ids, in the order shown.
        scores: in the order shown; None if the reply was unparseable.
        by_hand: whether the scores were extracted by hand, because they are not in the first line of the reply.
        text: the reply.
    """

    question: str
    answers: tuple[str, str]
    scores: tuple[float, float] | None
    by_hand: bool
    location: str
    id: str = ""
    text: str = ""


def read_reviews(path: str, *, on_reject: OnReject = raise_reject) -> Iterator[Review]:
    """Read the reviews in a file."""
    yield from read_converted(path, _review, expected=", ".join(NEEDS), on_reject=on_reject)


def _review(row: Row) -> Review:
    question, first, second = (row.id((name,)) for name in NEEDS[:3])
    if question is None or first is None or second is None or row.data.get("score") is None:
        missing = ", ".join(name for name in NEEDS if row.data.get(name) in (None, ""))
        raise row.error(f"not a review: missing {missing}; pass review files or judgelm-batch run files")
    scores = row.score_pair("score")
    return Review(
        question=question,
        answers=(first, second),
        scores=None if scores == UNREADABLE else scores,
        by_hand=scores != UNREADABLE and split_review(row.optional_text("text") or "")[0] is None,
        location=f"{row.file}:{row.line}",
        id=row.id(("review_id",)) or "",
        text=row.optional_text("text") or "",
    )


def group_files(files: Sequence[tuple[str, Path]]) -> list[list[int]]:
    """Group files (name, path) that contain the two orders of the same pairs; return groups of indices.

    Keys are not unique across files, because models that write the same text share an answer id. Files named
    `X-vs-Y...` and `Y-vs-X...` are grouped first, then files with the same name. All other files form one group.
    """
    left = list(range(len(files)))
    sets: list[list[int]] = []
    for first, second in combinations(range(len(files)), 2):
        if first in left and second in left and _are_two_orders(files[first][1], files[second][1]):
            sets.append([first, second])
            left = [index for index in left if index not in (first, second)]
    for name in dict.fromkeys(files[index][0] for index in left):
        alike = [index for index in left if files[index][0] == name]
        if len(alike) > 1:
            sets.append(alike)
            left = [index for index in left if index not in alike]
    return [*sets, left] if left else sets


def _are_two_orders(path: Path, other: Path) -> bool:
    first, versus, second = path.stem.partition(_VERSUS)
    left, also_versus, right = other.stem.partition(_VERSUS)
    if not versus or not also_versus or not second.startswith(left) or not right.startswith(first):
        return False
    return first != left and second.removeprefix(left) == right.removeprefix(first)


def match_orders(reviews: Iterable[Review]) -> tuple[list[tuple[Review, Review]], list[Review]]:
    """Return pairs of reviews in opposite orders, and the remaining reviews."""
    by_key: dict[tuple[str, tuple[str, str]], Review] = {}
    for review in reviews:
        key = review.question, review.answers
        if key in by_key:
            before = by_key[key].location
            way_out = "pass each file only once, and use the same NAME in NAME=FILE for both orders of a pair of models"
            raise InputError(f"{review.location}: has the same answers in the same order as {before}; {way_out}")
        by_key[key] = review
    pairs: list[tuple[Review, Review]] = []
    alone: list[Review] = []
    done: set[tuple[str, tuple[str, str]]] = set()
    for key, review in by_key.items():
        other = review.question, (review.answers[1], review.answers[0])
        if key in done:
            continue
        if other in by_key and other != key:
            done.add(other)
            pairs.append((review, by_key[other]))
        else:
            alone.append(review)
    return pairs, alone


Parser = Callable[[str], Scores | Unparsed]

_RESULT_NEEDS = "an id and pred_text, gpt_result or pandalm_result"
_PANDALM_RESULTS: dict[str, Winner] = {"0": "tie", "tie": "tie", "1": 1, "2": 2}


def read_results(
    path: str,
    parser: Parser,
    *,
    fallback: Parser | None = None,
    on_reject: OnReject = raise_reject,
    hashes: Callable[[Row], TextHashes | None] = lambda row: None,
) -> list[Judgment]:
    """Read judgments from JudgeLM outputs (`pred_text`) or PandaLM's results (`gpt_result`, `pandalm_result`).

    An unparseable reply is a failure `off_grammar`, not a tie.

    If `parser` fails, `fallback` is used and the reply is marked as `Shown.read_anywhere`. A `score` in the row is the
    teacher's and is ignored. `hashes` returns the hashes of a row's judged texts.
    """

    def convert(row: Row) -> Judgment:
        name = row.id(("question_id", "idx", "id", "review_id"))
        if name is None:
            raise row.error("no id; a result must contain question_id, idx or id")
        return replace(_judgment(row, name, parser, fallback), hashes=hashes(row))

    read = unique(convert, attrgetter("sample_id"))
    return list(read_converted(path, read, expected=_RESULT_NEEDS, on_reject=on_reject))


def _judgment(row: Row, name: str, parser: Parser, fallback: Parser | None) -> Judgment:
    if "pred_text" not in row.data:
        return _from_result(row, name)
    text = row.text("pred_text", "pred_text")
    judgment = _from_reply(name, text, parser)
    if judgment.failure is None or fallback is None:
        return judgment
    second = _from_reply(name, text, fallback)
    return replace(second, shown=tuple(replace(reply, read_anywhere=second.failure is None) for reply in second.shown))


def _from_reply(name: str, text: str, parser: Parser) -> Judgment:
    parsed = parser(text)
    if isinstance(parsed, Unparsed):
        return _failed(name, text, parsed)
    if len(parsed.values) != 2:
        return _failed(name, text, Unparsed("off_grammar", text, f"expected 2 scores, got {len(parsed.values)}"))
    scores = (parsed.values[0], parsed.values[1])
    return Judgment(
        sample_id=name,
        mode="pair",
        verdict=PairVerdict(winner=winner_of(scores)),
        shown=(Shown(order=(0, 1), text=text, scores=scores, reason=split_review(text)[1] or None),),
        scores=scores,
    )


def _failed(name: str, text: str, failure: Unparsed) -> Judgment:
    shown = Shown(order=(0, 1), text=text, failure=failure)
    return Judgment(sample_id=name, mode="pair", verdict=None, shown=(shown,), failure=failure)


def _from_result(row: Row, name: str) -> Judgment:
    field = next((field for field in row.data if field.endswith("_result")), None)
    if field is None:
        raise row.error(f"no result: expected pred_text, gpt_result or pandalm_result, got {', '.join(row.data)}")
    value = row.data[field]
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise row.field_error(field, f'expected 1, 2, "Tie" or 0, got {describe(value)}')
    text = str(value)
    winner = _PANDALM_RESULTS.get(text.strip().lower())
    if winner is None:
        return _failed(name, text, Unparsed("off_grammar", text, "neither 1, 2 nor a tie"))
    reason = row.data.get(f"{field.removesuffix('_result')}_reason")
    reason = reason if isinstance(reason, str) and reason else None
    return Judgment(
        sample_id=name,
        mode="pair",
        verdict=PairVerdict(winner=winner),
        shown=(Shown(order=(0, 1), text=text, reason=reason),),
    )
