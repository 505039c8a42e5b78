"""Reviews of pairs in the order in which the judge saw them, as Vicuna, FastChat and QLoRA publish them.

A row names its question and its two answers by id and holds the two scores: `question_id`, `answer1_id`, `answer2_id`,
`score`, and `text`, the reply. The same two answers in the other order are another row, mostly of another file; the ids
tell which; file names do not (QLoRA's are not named by the first model).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from judgelm.data.formats.labels import split_review
from judgelm.data.readers.fields import optional_text, row_error, row_id, scores_field
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rejects import OnReject, convert_rows, raise_reject
from judgelm.data.readers.rows import Row
from judgelm.errors import InputError

NEEDS = ("question_id", "answer1_id", "answer2_id", "score")
_VERSUS = "-vs-"
_UNREADABLE = (-1.0, -1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """One judged pair in one order.

    Attributes:
        question: its id.
        answers: ids, in the order shown.
        scores: in the order shown; None where the source could not read the reply.
        by_hand: whether the scores are not the first line of the reply, so were extracted by hand.
        location: file and line.
        id: of the review; empty where the row has none.
        text: the reply; empty where the row has none.
    """

    question: str
    answers: tuple[str, str]
    scores: tuple[float, float] | None
    by_hand: bool
    location: str
    id: str = ""
    text: str = ""


def read_reviews(path: str, *, on_reject: OnReject = raise_reject) -> Iterator[Review]:
    """The reviews of a file; by default the first row that cannot be used is raised as an error.

    Raises:
        InputError: the file cannot be read, or a row is no review.
    """
    yield from convert_rows(read_rows(path), _review, path=path, expected=", ".join(NEEDS), on_reject=on_reject)


def _review(row: Row) -> Review:
    question, first, second = (row_id(row, (name,)) for name in NEEDS[:3])
    if question is None or first is None or second is None or row.data.get("score") is None:
        missing = ", ".join(name for name in NEEDS if row.data.get(name) in (None, ""))
        raise row_error(row, f"no review: it lacks {missing}; give review files or run files of judgelm-batch")
    scores = scores_field(row, "score")
    return Review(
        question=question,
        answers=(first, second),
        scores=None if scores == _UNREADABLE else scores,
        by_hand=scores != _UNREADABLE and split_review(optional_text(row, "text") or "")[0] is None,
        location=f"{row.file}:{row.line}",
        id=row_id(row, ("review_id",)) or "",
        text=optional_text(row, "text") or "",
    )


def group_files(files: Sequence[tuple[str, Path]]) -> list[list[int]]:
    """Group the files that hold the two orders of the same pairs, to match reviews within a group only.

    Two models that write the same text share an answer id (QLoRA's are hashes of the text), so over all files one
    key can mean two pairs. Files called `X-vs-Y...` and `Y-vs-X...` form a group, then files of one name; others are
    one group.

    Args:
        files: the user's name for each file, and its path.

    Returns:
        Groups of indices into `files`, each index in one group.
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
    """True if the files are called `X-vs-Y` and `Y-vs-X`, with any common ending."""
    first, versus, second = path.stem.partition(_VERSUS)
    left, also_versus, right = other.stem.partition(_VERSUS)
    if not versus or not also_versus or not second.startswith(left) or not right.startswith(first):
        return False
    return first != left and second.removeprefix(left) == right.removeprefix(first)


def match_orders(reviews: Iterable[Review]) -> tuple[list[tuple[Review, Review]], list[Review]]:
    """Reviews of one question and the same two answers, put together, and those left alone.

    Returns:
        Pairs in the order of their first review, and reviews without the other order.

    Raises:
        InputError: the same answers appear twice in one order.
    """
    by_key: dict[tuple[str, tuple[str, str]], Review] = {}
    for review in reviews:
        key = review.question, review.answers
        if key in by_key:
            before = by_key[key].location
            way_out = "give each file once, and the two orders of one pair of models as NAME=FILE with the same NAME"
            raise InputError(f"{review.location}: the same answers in the same order as in {before}; {way_out}")
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
