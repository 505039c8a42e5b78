r"""Convert published data sets to JudgeLM rows, for training and as labels.

    python data_tools/convert.py rows testset-v1.json -o pandalm.jsonl
    python data_tools/convert.py rows pandalm_train.json -o train.jsonl --scores 8 4 6
    python data_tools/convert.py reviews --questions question.jsonl --answers answer/*.jsonl \
        --reviews review/*.jsonl -o vicuna.jsonl --split-by question --holdout 20 --seed 0

`rows` reads all labelled formats that judgelm supports (JudgeLM, PandaLM test and train, plain, ...). Labels with only
a winner keep it (`winner`, no `score`) unless `--scores WIN LOSE TIE` sets scores for them. `reviews` joins
Vicuna/FastChat review tables. With `--split-by question`, all rows of `--holdout` questions are written to
OUT.holdout.jsonl and the others to OUT.train.jsonl, so that no question is in both; this holds the rows in memory.
Unusable rows are counted, and listed with file and line in OUT.rejects.jsonl.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from judgelm.cli.console import echo
from judgelm.data.labelled_pair import pair_fields, score_line, scores_of_winner
from judgelm.data.plain_rows import json_scores
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import Reject, Row, convert_or_reject, convert_rows, reject_row
from judgelm.data.samples import SampleStream
from judgelm.data.sources.layouts import split_review
from judgelm.data.sources.reviews import UNREADABLE
from judgelm.errors import ConfigError, InputError, JudgelmError
from judgelm.jsonl import atomic_write, check_no_input
from judgelm.records import Label, Sample

Converted = tuple[str, dict[str, object]]
"""A row and its question."""

REVIEW_FIELDS = "review_id, question_id, answer1_id, answer2_id, text, score"


def main() -> int:
    """Read the options, convert, and print the counts."""
    options = parse_options()
    counts: Counter[str] = Counter()
    try:
        convert(options, counts)
    except JudgelmError as error:
        echo(str(error), err=True)
        return 1
    for outcome, count in counts.items():
        echo(f"{count:>8}  {outcome}")
    return 0


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    rows = commands.add_parser("rows", help="any labelled format judgelm knows")
    rows.add_argument("files", nargs="+", metavar="FILE")
    rows.add_argument("--scores", nargs=3, type=float, metavar=("WIN", "LOSE", "TIE"), help="scores for a winner")
    reviews = commands.add_parser("reviews", help="Vicuna/FastChat review tables")
    reviews.add_argument("--questions", required=True, metavar="FILE")
    reviews.add_argument("--answers", required=True, nargs="+", metavar="FILE")
    reviews.add_argument("--reviews", required=True, nargs="+", metavar="FILE")
    for command in (rows, reviews):
        command.add_argument("-o", "--out", required=True, type=Path, metavar="OUT.jsonl")
        command.add_argument("--split-by", choices=["question"], help="write two files that share no question")
        command.add_argument("--holdout", type=int, default=20, help="questions held out (default 20)")
        command.add_argument("--seed", type=int, default=0, help="which questions are held out (default 0)")
    return parser.parse_args()


def convert(options: argparse.Namespace, counts: Counter[str]) -> None:
    """Write the converted rows and the rejects; each file appears only once complete."""
    paths = outputs(options)
    rejects_path = paths["rejects"]
    read = [options.questions, *options.answers, *options.reviews] if options.command == "reviews" else options.files
    check_no_input(paths.values(), read)
    counts.update({"rows read": 0, "rows written": 0})
    with ExitStack() as stack:
        files = {name: stack.enter_context(atomic_write(path)) for name, path in paths.items()}

        def on_reject(reject: Reject) -> None:
            counts["rows read"] += 1
            counts[f"dropped: {reject.kind} (see {rejects_path})"] += 1
            files["rejects"].write(asdict(reject))

        converted = from_reviews if options.command == "reviews" else from_rows
        rows: Iterator[Converted] = converted(options, counts, on_reject)
        for name, row in split(rows, options) if options.split_by else (("all", row) for _, row in rows):
            files[name].write(row)
            counts["rows written"] += 1
            counts[f"in {paths[name]}"] += 1
    if not rejects_path.stat().st_size:
        rejects_path.unlink()


def outputs(options: argparse.Namespace) -> dict[str, Path]:
    """The files to write."""
    stem = options.out.with_suffix("") if options.out.suffix == ".jsonl" else options.out
    paths = {"all": options.out}
    if options.split_by:
        paths = {name: Path(f"{stem}.{name}.jsonl") for name in ("train", "holdout")}
    return paths | {"rejects": Path(f"{stem}.rejects.jsonl")}


def split(rows: Iterator[Converted], options: argparse.Namespace) -> Iterator[tuple[str, dict[str, object]]]:
    """Write all rows of `holdout` random questions to one file and the rest to the other, in order.

    Raises:
        ConfigError: One file would be empty.
    """
    held = list(rows)
    questions = sorted({question for question, _ in held})
    if not 0 < options.holdout < len(questions):
        raise ConfigError(
            f"--holdout {options.holdout}: the files have {len(questions)} questions; leave some on each side"
        )
    holdout = set(random.Random(options.seed).sample(questions, options.holdout))
    for question, row in held:
        yield ("holdout" if question in holdout else "train"), row


def from_reviews(
    options: argparse.Namespace, counts: Counter[str], on_reject: Callable[[Reject], None]
) -> Iterator[Converted]:
    """Yield joined review rows with the question from the questions file."""
    for review in join_reviews(options.questions, options.answers, options.reviews):
        if isinstance(review, Reject):
            on_reject(review)
            continue
        counts["rows read"] += 1
        counts["rebuilt: scores put before a text that did not open with them"] += review.rebuilt
        yield review.question_id, review.row


def from_rows(
    options: argparse.Namespace, counts: Counter[str], on_reject: Callable[[Reject], None]
) -> Iterator[Converted]:
    """Yield labelled rows of any known format; a question is identified by its ID in `metadata` or its text."""
    seen: set[str] = set()
    for path in options.files:
        stream = SampleStream([path], on_reject=on_reject)
        for row, sample in stream.pairs():
            try:
                converted = convert_row(row, sample, stream, options.scores)
                if sample.id in seen:
                    raise InputError(f'id "{sample.id}" appeared before in another file; ids must be unique')
            except InputError as error:
                on_reject(reject_row(row, error))
                continue
            seen.add(sample.id)
            counts["rows read"] += 1
            yield str(sample.metadata.get("question_id") or sample.question), converted
        counts["cells turned from boolean or number into text"] += stream.coerced


def convert_row(row: Row, sample: Sample, stream: SampleStream, scores: list[float] | None) -> dict[str, object]:
    """Return a labelled row with JudgeLM's fields."""
    [label] = stream.labels(row, False)
    if label is None:
        raise InputError("no label; rows without one cannot be trained on")
    if len(sample.answers) != 2:
        raise InputError(f"expected 2 answers, got {len(sample.answers)}; JudgeLM rows hold pairs")
    converted: dict[str, object] = pair_fields(sample)
    if sample.reference is not None:
        converted["reference"] = {"text": sample.reference}
    converted |= label_fields(label, scores)
    with_reference = stream.source.name == "judgelm" and stream.labels(row, True)[0]
    if with_reference:
        converted |= {f"{name}_w_reference": value for name, value in label_fields(with_reference, scores).items()}
    source = {"category": sample.category, "source": f"{Path(row.file).name}:{row.line}"}
    return converted | {"metadata": {**source, **sample.metadata}}


def label_fields(label: Label, scores: list[float] | None) -> dict[str, object]:
    """Return a label with JudgeLM's fields."""
    pair = label.scores
    if pair is None and scores is not None:
        pair = scores_of_winner(label.winner, scores)
    if pair is not None:
        text = f"{score_line(pair)}\n{label.reason or ''}"
        fields: dict[str, object] = {"score": json_scores(pair), "text": text}
    else:
        fields = {"winner": label.winner, **({"text": label.reason} if label.reason else {})}
    if label.preference is not None:
        fields["preference"] = label.preference
    if label.votes:
        fields["votes"] = list(label.votes)
    return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedReview:
    """One review as a JudgeLM row, and its question.

    `rebuilt`: the text did not start with the scores (some reviews first solve a problem), so they were prepended.
    """

    row: dict[str, object]
    question_id: str
    rebuilt: bool


def join_reviews(questions: str, answers: Sequence[str], reviews: Sequence[str]) -> Iterator[JoinedReview | Reject]:
    """Join each review with its two answers and question; questions and answers are held in memory.

    Args:
        questions: rows with question_id, text, and optionally category.
        answers: files whose rows have answer_id, question_id, text, model_id.
        reviews: files whose rows have review_id, question_id, answer1_id, answer2_id, text, score.

    Returns:
        One joined review or reject per review row.

    Raises:
        InputError: A file cannot be read, a question or answer row is unusable, or a file has no usable review.
    """
    question_rows = rows_by_id([questions], "question_id")
    answer_rows = rows_by_id(answers, "answer_id")
    seen: set[str] = set()
    for path in reviews:
        join = partial(joined_row, questions=question_rows, answers=answer_rows, seen=seen)
        yield from convert_or_reject(read_rows(path), join, path=path, expected=REVIEW_FIELDS)


def rows_by_id(paths: Sequence[str], field: str) -> dict[str, Row]:
    """Return table rows by ID."""
    rows: dict[str, Row] = {}

    def named(row: Row) -> tuple[str, Row]:
        name = row.required_id(field, "the tables are joined by it")
        if name in rows:
            before = rows[name]
            raise row.error(f'{field} "{name}" appeared before in {before.file}:{before.line}; keep one')
        return name, row

    for path in paths:
        rows.update(convert_rows(read_rows(path), named, path=path, expected=field))
    return rows


def joined_row(row: Row, questions: dict[str, Row], answers: dict[str, Row], seen: set[str]) -> JoinedReview:
    """Join a review with its question and answers."""
    review_id = row.required_id("review_id", "it becomes the id of the joined row")
    if review_id in seen:
        raise row.error(f'review_id "{review_id}" appeared before; ids must be unique')
    seen.add(review_id)
    question = partner_of(row, "question_id", questions)
    first, second = partner_of(row, "answer1_id", answers), partner_of(row, "answer2_id", answers)
    question_id = row.id(("question_id",)) or ""
    for answer in (first, second):
        if answer.id(("question_id",)) != question_id:
            location = f"{answer.file}:{answer.line}"
            raise row.error(f'its answer in {location} belongs to another question than "{question_id}"')
    scores, text, rebuilt = score_and_text(row)
    joined: dict[str, object] = {
        "question_id": review_id,
        "question_body": question.text("text", "question_id, text"),
        "answer1_body": first.text("text", "answer_id, text"),
        "answer2_body": second.text("text", "answer_id, text"),
        "answer1_model_id": first.optional_text("model_id"),
        "answer2_model_id": second.optional_text("model_id"),
        "score": json_scores(scores),
        "text": text,
        "metadata": {
            "question_id": question_id,
            "category": question.optional_text("category"),
            "source": f"{Path(row.file).name}:{row.line}",
        },
    }
    return JoinedReview(row=joined, question_id=question_id, rebuilt=rebuilt)


def partner_of(row: Row, field: str, rows: dict[str, Row]) -> Row:
    """Return the row that a field refers to."""
    name = row.required_id(field, "the tables are joined by it")
    if name not in rows:
        raise row.error(f'field "{field}": "{name}" is in none of the given files; give the file that holds it')
    return rows[name]


def score_and_text(row: Row) -> tuple[tuple[float, float], str, bool]:
    """Return a review's scores and text, and whether the scores were prepended."""
    text = row.text("text", REVIEW_FIELDS)
    if row.data.get("score") is None:
        raise row.error(f'field "score" is missing; each row needs {REVIEW_FIELDS}')
    scores = row.score_pair("score")
    if scores == UNREADABLE:
        raise row.error("score [-1, -1]: the source could not read this review, so there is no label")
    written, _ = split_review(text)
    if written is None:
        return scores, f"{scores[0]:g} {scores[1]:g}\n{text}", True
    if written != scores:
        shown = f"{written[0]:g} {written[1]:g}"
        raise row.error(f'score {json_scores(scores)} and the text, which opens "{shown}", disagree; correct one')
    return scores, text, False


if __name__ == "__main__":
    sys.exit(main())
