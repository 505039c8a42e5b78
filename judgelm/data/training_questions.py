"""Hash a judge's training questions so that they can be detected in evaluations.

`training_questions.sha`, next to the judge's card, contains one line per distinct question: the xxh3-64 hash of its
normalised text, in 16 hex digits. The probability that any of 1,000 questions matches one of a million hashes by chance
is 5e-11.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from xxhash import xxh3_64_hexdigest

from judgelm.data.duplicates import normalised
from judgelm.data.samples import SampleStream
from judgelm.errors import InputError
from judgelm.jsonl import renamed

QUESTIONS_NAME = "training_questions.sha"
_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenQuestions:
    """The number of questions and pairs in an evaluation that are also in the judge's training set."""

    questions: int
    pairs: int
    questions_in_training: int
    pairs_in_training: int

    def __str__(self) -> str:
        sentence = f"{self.questions_in_training:,} of {self.questions:,} questions are in the judge's training set"
        if not self.questions_in_training:
            return sentence
        pairs = f"{self.pairs_in_training:,} of {self.pairs:,} pairs"
        return f"warning: {sentence} ({pairs}); exclude them, because the judge may have memorised their verdicts"


def question_hash(question: str) -> str:
    """Hash a question, ignoring case, punctuation, and spaces."""
    return xxh3_64_hexdigest(normalised(question).encode(errors="surrogatepass"))


def hashes_of_files(paths: Iterable[str]) -> set[str]:
    """Hash all questions in training files, skipping unusable rows."""
    return {
        question_hash(sample.question)
        for path in paths
        for sample in SampleStream([path], on_reject=lambda reject: None)
    }


def seen_questions(questions: Sequence[str], hashes: Set[str]) -> SeenQuestions:
    """Count how many of an evaluation's questions (one per pair) are in a training set."""
    of_pairs = [question_hash(question) for question in questions]
    return SeenQuestions(
        questions=len(set(of_pairs)),
        pairs=len(of_pairs),
        questions_in_training=len(set(of_pairs) & hashes),
        pairs_in_training=sum(value in hashes for value in of_pairs),
    )


def write_hashes(folder: str | Path, hashes: set[str]) -> None:
    """Write the hashes to the judge's folder."""
    with renamed(Path(folder) / QUESTIONS_NAME, way_out="") as partial:
        partial.write_text("".join(f"{value}\n" for value in sorted(hashes)), encoding="ascii")


def read_hashes(folder: str | Path) -> set[str] | None:
    """Read the hashes from a judge's folder, or return None if there is no file.

    Raises:
        InputError: the file is damaged.
    """
    path = Path(folder) / QUESTIONS_NAME
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror or error}; check its permissions") from error
    wrong = next((line for line in lines if len(line) != _DIGITS or not set(line) <= set("0123456789abcdef")), None)
    if wrong is not None:
        finding = f"expected {_DIGITS} hexadecimal digits per line, got {wrong[:40]!r}"
        raise InputError(f"{path}: {finding}; restore the file, or delete it to disable the check")
    return set(lines)
