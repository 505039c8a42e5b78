"""JudgeLM-100K's files as JudgeLM rows: the training file as it is, the validation set joined from four files.

The validation set's questions and answers, GPT-4's reviews without and with a reference, and the references are four
files; JudgeLM's own code joins them by line, this one by `question_id`. The `score` of the first file holds statistics
of the answers' generation and is no judgment.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from judgelm.data.benchmarks.base import Entry, Shape, convert_file
from judgelm.data.formats.labels import judgelm_label
from judgelm.data.formats.samples import judgelm_sample
from judgelm.data.labelled_pair import LabelledPair, judgelm_row
from judgelm.data.readers.fields import required_id, row_error
from judgelm.data.readers.rejects import OnReject
from judgelm.data.readers.rows import Row

_PAIRS = Shape(name="JudgeLM-100K", needs=("question_id", "question_body", "answer1_body", "answer2_body"))
_REVIEWS = Shape(name="JudgeLM-100K's reviews", needs=("question_id", "text", "score"))
_REFERENCES = Shape(name="JudgeLM-100K's references", needs=("question_id", "reference"))
_PARTS = {"_gpt4_with_reference": "_w_reference", "_gpt4": ""}
"""Ending of a file of reviews -> ending of the fields that they become."""

Joined = dict[str, dict[str, object]]
"""Id of a question -> fields to join to its pair."""


def load_judgelm(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """Rows of the training file, or of the validation set's four files.

    Raises:
        InputError: a file cannot be read, or has another shape.
    """
    joined: Joined = {}
    pairs = []
    for path in files:
        stem = Path(path).name.partition(".")[0]
        ending = next((ending for ending in _PARTS if stem.endswith(ending)), None)
        if ending is not None:
            _join_reviews(path, _PARTS[ending], joined, on_reject)
        elif stem.endswith("_references"):
            _join_references(path, joined, on_reject)
        else:
            pairs.append(path)
    is_validation = len(pairs) < len(files)
    for path in pairs:
        yield from convert_file(path, _PAIRS, lambda row, _: _entry(row, joined, is_validation), on_reject)


def _join_reviews(path: str, suffix: str, joined: Joined, on_reject: OnReject) -> None:
    def join(row: Row, row_number: int) -> None:
        fields = {f"{name}{suffix}": row.data[name] for name in ("text", "score")}
        joined.setdefault(required_id(row, "question_id", "reviews are joined by it"), {}).update(fields)

    for _ in convert_file(path, _REVIEWS, join, on_reject):
        pass


def _join_references(path: str, joined: Joined, on_reject: OnReject) -> None:
    def join(row: Row, row_number: int) -> None:
        name = required_id(row, "question_id", "references are joined by it")
        joined.setdefault(name, {})["reference"] = row.data["reference"]

    for _ in convert_file(path, _REFERENCES, join, on_reject):
        pass


def _entry(row: Row, joined: Joined, is_validation: bool) -> Entry:
    """A pair with what was judged of it, in the order of fields that the builder writes.

    Raises:
        InputError: the row cannot be used, or nothing was judged of it.
    """
    name = required_id(row, "question_id", "it names the pair")
    data = {key: value for key, value in row.data.items() if not is_validation or key not in ("score", "text")}
    whole = Row(row.file, row.line, data | joined.get(name, {}))
    sample = judgelm_sample(whole)
    plain = judgelm_label(whole, False)
    referenced = None if sample.reference is None else judgelm_label(whole, True)
    if plain is None and referenced is None:
        raise row_error(row, "no judgment that can be read, without or with the reference; leave the row out")
    pair = LabelledPair(sample=sample, plain=plain, referenced=referenced, source="judgelm-100k")
    return Entry({key: value for key, value in judgelm_row(pair).items() if key not in ("swapped", "epoch")})
