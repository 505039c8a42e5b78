r"""Short answers: what a reply that reasons first ends in, the majority of several, and exact match.

Answers come out of replies in one spelling each (`1,234.50` and `$1234.5` are `1234.5`, `(b)` is `B`), so that equal
ones compare equal. What cannot be parsed, or could mean two things, is None: nothing is guessed. The last answer that
is marked as one counts, since a chain of thought may correct itself.

Exact match has each data set's normalisation. A mode asks the judge only where the answers differ; a metric counts how
often they do not. A question can have several validated gold answers, any of which will do, and an answer several
spans, all of which are needed; a gold answer is therefore a tuple of spans throughout.

Source: Self-Reference, Figures 5 to 11 (the forms that the prompts ask for); GSM8K's own `#### 18`; SSR-Judge, section
3.2 (majority); QA-Judge, section 5.2; HotpotQA (Yang et al. 2018), whose rules 2WikiMultiHopQA shares; DROP (Dua et al.
2019), whose rules Quoref (Dasigi et al. 2019) shares; each as its official evaluation script has it.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from string import ascii_uppercase
from typing import Literal, get_args

from judgelm.errors import InputError, not_found
from judgelm.parsing.verdicts import read_verdict
from judgelm.records import Sample, Unparsed

Task = Literal["number", "choice", "preference"]
"""The answer that a question asks for: a number (GSM8K), an option's letter (MMLU-Pro), the better of two answers."""

MAX_LETTERS = 10
"""MMLU-Pro has options A to J; so many where a sample does not say."""

_MAX_NUMBER_LENGTH = 50
_MAX_MARKS = 100
"""So many that no number follows are a reply that repeats itself: each look behind one may go to the reply's end."""

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
    """The answer that a solution ends in.

    Args:
        text: the solution.
        task: what it should end in.
        letters: how many options there are; a letter behind them is no answer.
        finished: whether the solution came to its end. If it was cut off, an answer counts only if it is marked as one
            and does not stand on the last line, where it may lack its end.

    Returns:
        A number in plain digits (`18`, `-0.5`, `1/3`), a letter (`B`), or `A`, `B`, `C` for a preference; None where
        none can be extracted.
    """
    if not finished:
        text = text[: text.rfind("\n") + 1]
    if task == "preference":
        verdict = read_verdict(text, {"A": "A", "B": "B", "C": "C"}, brackets_only=True)
        return None if isinstance(verdict, Unparsed) else verdict.label
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return _choice(lines, letters, finished=finished) if task == "choice" else _number(lines, finished=finished)


def canonical(answer: str, task: Task) -> str | None:
    """A known answer (a data set's, a person's) in the spelling of `final_answer`; a solution counts as its answer.

    Returns:
        None where it holds no such answer.
    """
    if task == "number":
        return canonical_number(answer) or final_answer(answer, task)
    plain = answer.strip().strip("()[]{}*. ").upper()
    if len(plain) == 1 and plain in (ascii_uppercase if task == "choice" else "ABC"):
        return plain
    return final_answer(answer, task, letters=len(ascii_uppercase))


def canonical_number(text: str) -> str | None:
    """A number in plain digits: without thousands commas, currency, needless zeros; a fraction reduced.

    Returns:
        None where the text is more or less than one number, or has more than 50 signs.
    """
    plain = text.strip().strip("*_ ").removesuffix(".").removesuffix("%").strip()
    if len(plain) > _MAX_NUMBER_LENGTH or _NUMBER.fullmatch(plain) is None:
        return None
    digits = re.sub(r"[$€£,\s]", "", plain)
    whole, _, below = digits.partition("/")
    if below and not int(below):
        return None
    value = Fraction(whole) / int(below or 1)
    return _written(value)


def _written(value: Fraction) -> str:
    """Write a decimal where that is exact, else a reduced fraction."""
    rest, places = value.denominator, 0
    for prime in (2, 5):
        power = 0
        while rest % prime == 0:
            rest, power = rest // prime, power + 1
        places = max(places, power)
    if rest != 1:
        return str(value)
    if not places:
        return str(value.numerator)
    digits = str(abs(value.numerator) * 10**places // value.denominator).zfill(places + 1)
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def _number(lines: list[str], *, finished: bool) -> str | None:
    """Behind the last mark that a number follows; without any mark the only number of the last line."""
    text = "\n".join(lines).replace("−", "-")
    for mark in islice(_last_first(_NUMBER_MARK, text), _MAX_MARKS):
        if (answer := _number_behind(text[mark.end() :])) is not None:
            return answer
    numbers = _NUMBER.findall(_result(lines[-1])) if finished and lines else []
    return canonical_number(numbers[0]) if len(numbers) == 1 else None


def _number_behind(text: str) -> str | None:
    """The first number of a mark's sentence, or of its result."""
    sentence = _SENTENCE_END.split(text.lstrip(" \n:*_`$\\([{"), maxsplit=1)[0]
    match = _NUMBER.search(_result(sentence))
    return None if match is None else canonical_number(match[0])


def _result(calculation: str) -> str:
    """The text behind the last equals sign; all of it where there is none."""
    return calculation.rpartition("=")[2]


def _choice(lines: list[str], letters: int, *, finished: bool) -> str | None:
    """Behind the last mark that a letter follows; without any mark the last line, if it is a letter or ends in one."""
    text = "\n".join(lines)
    allowed = ascii_uppercase[:letters]
    for mark in _last_first(_CHOICE_MARK, text):
        letter = mark["letter"] or mark["boxed"]
        if mark["letter"] in ("A", "I") and not mark["open"] and _ARTICLE.match(text, mark.end()):
            continue  # "the answer is: A protist ...": a word, no option
        return letter if letter in allowed and _MORE_CHOICES.match(text, mark.end()) is None else None
    end = _LETTER_AT_END.fullmatch(lines[-1]) if finished and lines else None
    letter = None if end is None else end["alone"] or end["bracketed"]
    return letter if letter is not None and letter in allowed else None


def _last_first(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    return reversed(list(pattern.finditer(text)))


_ROUNDING = 1e-9  # 0.6 and 3 / 5 are not the same double in every spelling


@dataclass(frozen=True, slots=True, kw_only=True)
class Majority:
    """The majority of k answers.

    Attributes:
        answer: the commonest answer; None where no reply has one.
        votes: how many of the replies give it.
        k: replies, those without an answer included.
        tied: whether another answer has as many votes.
    """

    answer: str | None
    votes: int
    k: int
    tied: bool

    @property
    def agreement(self) -> float:
        """Votes by k, in [0, 1] (SSR-Judge, equation 1)."""
        return self.votes / self.k

    def passes(self, tau: float) -> bool:
        """True if the gate is on (SSR-Judge, equation 2); never where there is no answer to show."""
        return self.answer is not None and self.votes >= tau * self.k - _ROUNDING


def majority(answers: Sequence[str | None]) -> Majority:
    """The commonest of k answers, already comparable as texts; of several the one given first.

    Args:
        answers: one per reply, None where none can be extracted.

    Raises:
        ValueError: no reply at all (agreement of nothing is undefined).

    Example:
        >>> found = majority(["42", "41", "42", None, "42"])
        >>> found.answer, found.agreement, found.passes(0.6)
        ('42', 0.6, True)

    Source: SSR-Judge, equation 1. The paper says nothing of ties (2-2-1); no gate above one half is touched by them.
    """
    if not answers:
        raise ValueError("agreement: no self-solves; agreement over none is undefined")
    counts = Counter(answer for answer in answers if answer is not None)  # keeps the order of first appearance
    if not counts:
        return Majority(answer=None, votes=0, k=len(answers), tied=False)
    votes = max(counts.values())
    leading = [answer for answer, count in counts.items() if count == votes]
    return Majority(answer=leading[0], votes=votes, k=len(answers), tied=len(leading) > 1)


QaRules = Literal["hotpotqa", "2wiki", "drop", "quoref", "strict"]
"""The data set whose rules apply; `strict` is ours: as HotpotQA's, but numbers keep sign, point and percent."""

Gold = tuple[str, ...]
"""One gold answer: its spans."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_DROP_BREAKS = re.compile("[ -]")
_GROUPED = re.compile(r"(?<![\d,.])(\d{1,3}(?:,\d{3})+)(?![\d,])")
_AROUND = "\"'`“”‘’()[]{},;:!?."


def check_rules(name: str) -> None:
    """Check that rules of this name exist.

    Raises:
        ConfigError: there are no such rules.
    """
    if name not in get_args(QaRules):
        raise not_found("rules", name, get_args(QaRules))


def golds_of(sample: Sample) -> list[Gold]:
    """The validated answers of a sample, that of `sample.reference` first; none where it has no reference.

    `metadata` has all of them as `references` (texts), and where some have several spans also as `reference_spans`.

    Raises:
        InputError: one of the two is something else.
    """
    if sample.reference is None:
        return []
    spans, texts = sample.metadata.get("reference_spans"), sample.metadata.get("references")
    if spans is not None:
        if not isinstance(spans, list | tuple) or not all(_are_texts(gold) and gold for gold in spans):
            raise InputError(f"sample {sample.id}: reference_spans: expected a list of lists of texts")
        return [tuple(gold) for gold in spans]
    if texts is not None and not _are_texts(texts):
        raise InputError(f"sample {sample.id}: references: expected a list of texts, got {texts!r:.60}")
    others = [(text,) for text in texts if text != sample.reference] if isinstance(texts, list | tuple) else []
    return [(sample.reference,), *others]


def _are_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)


def exact_match(predicted: str, golds: Sequence[Gold], rules: QaRules) -> bool:
    """True if an answer of one span is, once normalised, one of the gold answers.

    HotpotQA's rules know no spans: a gold answer of several is compared as one text, joined by blanks. DROP's and
    Quoref's pass over a gold answer whose first span is blank, as the original code does.

    Raises:
        ValueError: no gold answer, or one without a span: a match with nothing is undefined, not false.
        ConfigError: there are no such rules.
    """
    check_rules(rules)
    if not golds or not all(golds):
        raise ValueError("exact match: a question without a gold answer; a match with nothing is undefined")
    if rules in ("drop", "quoref"):
        return any(drop_spans_match([predicted], gold) for gold in golds if gold[0].strip())
    normalise = strictly_normalised if rules == "strict" else hotpot_normalised
    return any(normalise(predicted) == normalise(" ".join(gold)) for gold in golds)


def hotpot_normalised(text: str) -> str:
    """Lower case, without ASCII punctuation and the articles a, an, the; blanks squeezed.

    A point and a sign are punctuation too, so `93.5%` and `93.5` are alike, but so are `2.5`, `25` and `-25`: see
    `strictly_normalised`.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def strictly_normalised(text: str) -> str:
    """Like `hotpot_normalised`, but a word with a digit in it keeps its sign, point, percent and currency.

    `-5` is not `5`, `2.5` is not `25`, `93.5%` is not `93.5`; `1,000` is `1000`, and Unicode compositions count as one
    letter. This is our own rule, for those who want no false match to keep the judge from being asked.
    """
    words = _GROUPED.sub(lambda match: match[1].replace(",", ""), unicodedata.normalize("NFC", text).lower()).split()
    return " ".join(filter(None, map(_strict_word, words)))


def drop_normalised(text: str) -> str:
    """Words between blanks and hyphens, in lower case, numbers as floats, else without punctuation and articles.

    `1,000` becomes `1000.0` and `3-1` becomes `3.0 1.0`. A minus sign is a hyphen, so `-5` becomes `5.0`.
    """
    words = (_drop_word(word) for word in _DROP_BREAKS.split(text.lower()))
    return " ".join(word for word in words if word)


def drop_spans_match(predicted: Sequence[str], gold: Sequence[str]) -> bool:
    """True if both sides have equally many spans, and the same normalised ones in any order."""
    ours, theirs = map(drop_normalised, predicted), map(drop_normalised, gold)
    return len(predicted) == len(gold) and set(ours) == set(theirs)


def is_number(text: str) -> bool:
    """True if `float` reads it, as in DROP's script: also `1e3`, `nan` and the digits of other scripts."""
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
