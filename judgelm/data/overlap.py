"""Measure the overlap of test files with training files.

Each distinct test question is counted under the first kind that applies: **exact** (equal after normalisation),
**near** (similar word pairs; at least 10 words), or **passage** (a shared sequence of words, 13 by default; Brown et
al. 2020, appendix C). Answers with at least 10 words are compared by word triples, without passages.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from xxhash import xxh3_64_intdigest

from judgelm.data.duplicates import Duplicate, TextIndex, normalised
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import Row
from judgelm.data.samples import SampleStream
from judgelm.errors import InputError

OverlapKind = Literal["exact", "near", "passage"]

_MIN_WORDS = 10
_QUESTION_FIELDS = ("question", "prompt", "instruction", "turns", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapExample:
    """A test text and its counterpart: `of` is the id of the training row, or the shared passage."""

    part: Literal["question", "answer"]
    kind: OverlapKind
    text: str
    of: str
    similarity: float | None


@dataclass(slots=True, kw_only=True)
class Overlap:
    """The overlap of a test file, counted in distinct questions, distinct answers, and rows."""

    path: str
    rows: int = 0
    rejected: int = 0
    questions: int = 0
    answers: int = 0
    question_overlaps: Counter[OverlapKind] = field(default_factory=Counter)
    answer_overlaps: Counter[OverlapKind] = field(default_factory=Counter)
    rows_with_question: int = 0
    examples: list[OverlapExample] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """True if nothing overlaps."""
        return not (self.question_overlaps.total() or self.answer_overlaps.total())


class IndexedTexts:
    """The indexed questions and answers of a file.

    `threshold` is the minimum similarity of near duplicates, in [0.7, 1]; `words` is the length of a shared passage (0
    disables passages).
    """

    def __init__(self, path: str, *, threshold: float = 0.7, words: int = 13) -> None:
        self.rows = 0
        self._words = words
        self._questions = TextIndex(threshold=threshold)
        self._answers = TextIndex(threshold=threshold, shingle=3, min_words=_MIN_WORDS)
        self._passages: set[int] = set()
        for name, question, answers in _texts(path, Overlap(path=path)):
            self.rows += 1
            self._questions.add(name, question)
            self._passages.update(xxh3_64_intdigest(passage) for passage in self._passages_of(question))
            for answer in answers:
                self._answers.add(name, answer)

    def check(self, path: str, *, examples: int = 3) -> Overlap:
        """Look up all texts in a test file, keeping up to `examples` examples per part and kind."""
        result = Overlap(path=path)
        known: dict[tuple[str, str], bool] = {}
        for _, question, answers in _texts(path, result):
            result.rows += 1
            key = ("question", normalised(question))
            if key not in known:
                result.questions += 1
                known[key] = self._count(result, self.find_question(question), result.question_overlaps, examples)
            result.rows_with_question += known[key]
            for answer in answers:
                key = ("answer", normalised(answer))
                if key not in known and len(key[1].split()) >= _MIN_WORDS:
                    result.answers += 1
                    copy = _example("answer", answer, self._answers.find(answer))
                    known[key] = self._count(result, copy, result.answer_overlaps, examples)
        return result

    def find_question(self, question: str) -> OverlapExample | None:
        """Return an indexed question that is equal, is similar, or shares a passage, or None."""
        copy = _example("question", question, self._questions.find(question))
        if copy is not None:
            return copy
        shared = next((text for text in self._passages_of(question) if xxh3_64_intdigest(text) in self._passages), None)
        if shared is None:
            return None
        return OverlapExample(part="question", kind="passage", text=question, of=shared.decode(), similarity=None)

    def _passages_of(self, text: str) -> Iterator[bytes]:
        words = normalised(text).encode().split()
        if self._words:
            for start in range(len(words) - self._words + 1):
                yield b" ".join(words[start : start + self._words])

    @staticmethod
    def _count(result: Overlap, example: OverlapExample | None, counts: Counter[OverlapKind], examples: int) -> bool:
        if example is None:
            return False
        counts[example.kind] += 1
        if counts[example.kind] <= examples:
            result.examples.append(example)
        return True


class ExcludedQuestions:
    """Test questions that must not occur in training pairs."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._files = [(path, IndexedTexts(path)) for path in paths]
        self._results: dict[str, str] = {}

    def find(self, question: str) -> str:
        """Return the file and kind of overlap, such as `test.jsonl: exact 17`, or an empty string."""
        if question not in self._results:
            copies = ((path, texts.find_question(question)) for path, texts in self._files)
            copy = next(((path, copy) for path, copy in copies if copy is not None), None)
            self._results[question] = "" if copy is None else f"{copy[0]}: {copy[1].kind} {copy[1].of}"
        return self._results[question]


def _example(part: Literal["question", "answer"], text: str, copy: Duplicate | None) -> OverlapExample | None:
    if copy is None:
        return None
    return OverlapExample(part=part, kind=copy.kind, text=text, of=copy.of, similarity=copy.similarity)


def _texts(path: str, counts: Overlap) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    usable = False
    try:
        for sample in SampleStream([path], on_reject=lambda _: _reject(counts)):
            usable = True
            yield sample.id, sample.question, sample.answers
    except InputError:
        if not any(isinstance(row, Row) and _questions(row) for row in read_rows(path)):
            raise
    if usable:
        return
    counts.rejected = 0
    for row in read_rows(path):
        questions = _questions(row) if isinstance(row, Row) else []
        for question in questions:
            usable = True
            yield str(row.line), question, ()
        if not questions:
            _reject(counts)
    if not usable:
        raise InputError(f"{path}: none of the rows contains a question; expected one of {', '.join(_QUESTION_FIELDS)}")


def _reject(counts: Overlap) -> None:
    counts.rejected += 1


def _questions(row: Row) -> list[str]:
    value = next((row.data[name] for name in _QUESTION_FIELDS if row.data.get(name)), None)
    texts = value if isinstance(value, list) else [value]
    return [text for text in texts if isinstance(text, str)]
