"""Extract short answers from replies that reason first, find majority answers, and compute exact match.

Answers are normalised (`1,234.50` and `$1234.5` become `1234.5`, and `(b)` becomes `B`). The last marked answer is
used, because models may correct themselves in a chain of thought. A question can have several gold answers, any of
which is correct. Each gold answer is a tuple of spans, all of which are required.

Source: Self-Reference, Figures 5 to 11; GSM8K's `#### 18`; SSR-Judge, section 3.2 (majority); QA-Judge, section 5.2;
the official evaluation scripts of HotpotQA (Yang et al. 2018; also for 2WikiMultiHopQA) and DROP (Dua et al. 2019; also
for Quoref, Dasigi et al. 2019).
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import islice
from string import ascii_uppercase
from typing import Literal, get_args

from judgelm.errors import InputError, not_found
from judgelm.parsing.verdicts import read_verdict
from judgelm.records import Sample, Unparsed

Task = Literal["number", "choice", "preference"]
"""The kind of answer: a number (GSM8K), the letter of an option (MMLU-Pro), or the better of two answers."""

MAX_LETTERS = 10
"""Default number of options for samples that do not list any; MMLU-Pro has options A to J."""

_MAX_NUMBER_LENGTH = 50
_MAX_DIGITS = 400  # more digits than any such number has as an exact decimal
_MAX_MARKS = 100
"""Limits the time spent on replies that repeat a mark."""

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?"
_NUMBER = re.compile(rf"(?<![\w.])(?:-?[$€£]\s?|-)?{_DIGITS}(?:\s?/\s?[0-9]+)?")
_NUMBER_MARK = re.compile(
    r"(?i:\banswer is\b)(?: ?\(arabic numerals\))?|(?i:\banswer ?:)|####|^A:|\\boxed\{", re.MULTILINE
)
_SENTENCE_END = re.compile(r"\.(?![0-9])|\n")

_CHOICE_MARK = re.compile(
    r"(?i:\b(?:answer is\b|answer ?:|(?:option|choice) is\b)"
    r"(?:\s?(?:[:*_`$]|the\b|option\b|choice\b|\\boxed\{|\\text\{))*)"
    r"\s?(?P<open>[(\[{]?)\s?(?P<letter>[A-Z])(?![\w'])|\\boxed\{(?:\\text\{)?\(?(?P<boxed>[A-Z])(?![\w'])"
)
_MORE_CHOICES = re.compile(r"[\s)\]*]*(?:,|/|\bor\b|\band\b)\s*(?:[(\[][A-Z][)\]]|[A-Z](?![\w']))")
_ARTICLE = re.compile(r" (?!(?:because|since|as)\b)[a-z]")
_LETTER_AT_END = re.compile(
    r"[*_(\[$]*(?P<alone>[A-Z])[*_)\]$]*[.:]?|.*\b(?:is|to|be)[ :*]*\((?P<bracketed>[A-Z])\)[*.]*"
)


def final_answer(text: str, task: Task, *, letters: int = MAX_LETTERS, finished: bool = True) -> str | None:
    """Return a solution's final answer: plain digits (`18`, `1/3`) or a letter.

    Args:
        text: the solution.
        task: kind of answer.
        letters: number of options; letters beyond the last option are not answers.
        finished: False if the solution was cut off. The answer must then be marked and must not be on the last line.
    """
    if not finished:
        text = text[: text.rfind("\n") + 1]
    if task == "preference":
        verdict = read_verdict(text, {"A": "A", "B": "B", "C": "C"}, brackets_only=True)
        return None if isinstance(verdict, Unparsed) else verdict.label
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return _choice(lines, letters, finished=finished) if task == "choice" else _number(lines, finished=finished)


def canonical(answer: str, task: Task) -> str | None:
    """Normalise an answer from a dataset or a person in the same way as `final_answer`; None if there is no answer."""
    if task == "number":
        return canonical_number(answer) or final_answer(answer, task)
    plain = answer.strip().strip("()[]{}*. ").upper()
    if len(plain) == 1 and plain in (ascii_uppercase if task == "choice" else "ABC"):
        return plain
    return final_answer(answer, task, letters=len(ascii_uppercase))


def canonical_number(text: str) -> str | None:
    """Return a number in plain digits, without separators, currency, or trailing zeros. Fractions are reduced."""
    plain = text.strip().strip("*_ ").removesuffix(".").removesuffix("%").strip()
    if len(plain) > _MAX_NUMBER_LENGTH or _NUMBER.fullmatch(plain) is None:
        return None
    digits = re.sub(r"[$€£,\s]", "", plain)
    whole, _, below = digits.partition("/")
    if below and not int(below):
        return None
    value = Fraction(whole) / int(below or 1)
    with localcontext(prec=_MAX_DIGITS):
        decimal = (Decimal(value.numerator) / value.denominator).normalize()
    return f"{decimal:f}" if Fraction(decimal) == value else str(value)


def _number(lines: list[str], *, finished: bool) -> str | None:
    text = "\n".join(lines).replace("−", "-")
    for mark in islice(_last_first(_NUMBER_MARK, text), _MAX_MARKS):
        if (answer := _number_behind(text[mark.end() :])) is not None:
            return answer
    numbers = _NUMBER.findall(_result(lines[-1])) if finished and lines else []
    return canonical_number(numbers[0]) if len(numbers) == 1 else None


def _number_behind(text: str) -> str | None:
    sentence = _SENTENCE_END.split(text.lstrip(" \n:*_`$\\([{"), maxsplit=1)[0]
    match = _NUMBER.search(_result(sentence))
    return None if match is None else canonical_number(match[0])


def _result(calculation: str) -> str:
    return calculation.rpartition("=")[2]


def _choice(lines: list[str], letters: int, *, finished: bool) -> str | None:
    text = "\n".join(lines)
    allowed = ascii_uppercase[:letters]
    for mark in _last_first(_CHOICE_MARK, text):
        letter = mark["letter"] or mark["boxed"]
        if mark["letter"] in ("A", "I") and not mark["open"] and _ARTICLE.match(text, mark.end()):
            continue  # an article, not an option, as in "the answer is: A protist ..."
        return letter if letter in allowed and _MORE_CHOICES.match(text, mark.end()) is None else None
    end = _LETTER_AT_END.fullmatch(lines[-1]) if finished and lines else None
    letter = None if end is None else end["alone"] or end["bracketed"]
    return letter if letter is not None and letter in allowed else None


def _last_first(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    return reversed(list(pattern.finditer(text)))


_ROUNDING = 1e-9  # tau * k may be slightly above the number of votes in floating point


@dataclass(frozen=True, slots=True, kw_only=True)
class Majority:
    """The most common of k answers.

    Attributes:
        answer: the most common answer; None if no reply contains an answer.
        k: number of replies, including replies without an answer.
        tied: whether another answer has the same number of votes.
    """

    answer: str | None
    votes: int
    k: int
    tied: bool

    @property
    def agreement(self) -> float:
        """Votes divided by k, in [0, 1] (SSR-Judge, equation 1)."""
        return self.votes / self.k

    def passes(self, tau: float) -> bool:
        """Return whether there is an answer and its agreement is at least `tau` (SSR-Judge, equation 2)."""
        return self.answer is not None and self.votes >= tau * self.k - _ROUNDING


def majority(answers: Sequence[str | None]) -> Majority:
    """Return the most common of k answers, or the first if several are equally common (the paper does not define ties).

    Example:
        >>> common = majority(["42", "41", "42", None, "42"])
        >>> common.answer, common.agreement, common.passes(0.6)
        ('42', 0.6, True)

    Source: SSR-Judge, equation 1.
    """
    if not answers:
        raise ValueError("agreement requires at least one answer")
    counts = Counter(answer for answer in answers if answer is not None)  # keeps the order of first appearance
    if not counts:
        return Majority(answer=None, votes=0, k=len(answers), tied=False)
    votes = max(counts.values())
    leading = [answer for answer, count in counts.items() if count == votes]
    return Majority(answer=leading[0], votes=votes, k=len(answers), tied=len(leading) > 1)


QaRules = Literal["hotpotqa", "2wiki", "drop", "quoref", "strict"]
"""The dataset whose matching rules are used. `strict` is our variant of HotpotQA's rules, in which numbers keep their
sign, decimal point, and percent sign.
"""

Gold = tuple[str, ...]
"""The spans of a gold answer."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_DROP_BREAKS = re.compile("[ -]")
_GROUPED = re.compile(r"(?<![\d,.])(\d{1,3}(?:,\d{3})+)(?![\d,])")
_AROUND = "\"'`“”‘’()[]{},;:!?."


def golds_of(sample: Sample) -> list[Gold]:
    """Return a sample's validated gold answers, starting with `sample.reference`, if any.

    `metadata["references"]` contains all gold answers as strings, and `metadata["reference_spans"]` as lists of spans.
    """
    if sample.reference is None:
        return []
    spans, texts = sample.metadata.get("reference_spans"), sample.metadata.get("references")
    if spans is not None:
        if not isinstance(spans, list | tuple) or not all(_are_texts(gold) and gold for gold in spans):
            raise InputError(f"sample {sample.id}: reference_spans: expected a list of lists of strings")
        return [tuple(gold) for gold in spans]
    if texts is not None and not _are_texts(texts):
        raise InputError(f"sample {sample.id}: references: expected a list of strings, got {texts!r:.60}")
    others = [(text,) for text in texts if text != sample.reference] if isinstance(texts, list | tuple) else []
    return [(sample.reference,), *others]


def _are_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)


def exact_match(predicted: str, golds: Sequence[Gold], rules: QaRules) -> bool:
    """Return whether a single-span answer matches a gold answer after normalisation.

    HotpotQA's rules join the spans of a gold answer with spaces. As in the original code, the DROP and Quoref rules
    skip gold answers whose first span is blank.
    """
    if not golds or not all(golds):
        raise ValueError("exact match requires a gold answer with at least one span")
    if rules not in get_args(QaRules):
        raise not_found("rules", rules, get_args(QaRules))
    if rules in ("drop", "quoref"):
        return any(drop_spans_match([predicted], gold) for gold in golds if gold[0].strip())
    normalise = strictly_normalised if rules == "strict" else hotpot_normalised
    return any(normalise(predicted) == normalise(" ".join(gold)) for gold in golds)


def hotpot_normalised(text: str) -> str:
    """Return lower-case text with single spaces and without ASCII punctuation or articles (a, an, the).

    Decimal points and signs are punctuation, so `93.5%` equals `93.5`, but `2.5` also equals `25`.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def strictly_normalised(text: str) -> str:
    """Normalise like `hotpot_normalised`, but keep signs, decimal points, percent signs, and currency in numbers.

    `2.5` is not `25`, but `1,000` is `1000`.
    """
    words = _GROUPED.sub(lambda match: match[1].replace(",", ""), unicodedata.normalize("NFC", text).lower()).split()
    return " ".join(filter(None, map(_strict_word, words)))


def drop_normalised(text: str) -> str:
    """Return lower-case words split at spaces and hyphens, with numbers as floats and no punctuation or articles.

    `1,000` becomes `1000.0`, and `3-1` becomes `3.0 1.0`. A minus sign counts as a hyphen, so `-5` becomes `5.0`.
    """
    words = (_drop_word(word) for word in _DROP_BREAKS.split(text.lower()))
    return " ".join(word for word in words if word)


def drop_spans_match(predicted: Sequence[str], gold: Sequence[str]) -> bool:
    """Return whether both answers have the same normalised spans, in any order."""
    ours, theirs = map(drop_normalised, predicted), map(drop_normalised, gold)
    return len(predicted) == len(gold) and set(ours) == set(theirs)


def is_number(text: str) -> bool:
    """Return whether `float` accepts the text, as in DROP's script. Examples are `1e3`, `nan`, and non-ASCII digits."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _drop_word(word: str) -> str:
    plain = word if is_number(word) else word.translate(_WITHOUT_PUNCTUATION)
    normalised = str(float(plain)) if is_number(plain) else plain
    return " ".join(_ARTICLES.sub(" ", normalised).split())


def _strict_word(word: str) -> str:
    if any(sign.isdigit() for sign in word):
        return word.lstrip(_AROUND.replace(".", "")).rstrip(_AROUND)
    return hotpot_normalised(word)
