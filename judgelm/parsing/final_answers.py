r"""Endings of replies that reason first: a number, a letter, or a preference in double brackets.

Answers come out in one spelling each (`1,234.50` and `$1234.5` are `1234.5`, `(b)` is `B`), so that equal ones compare
equal. What cannot be read, or could mean two things, is None: nothing is guessed. The last answer that is marked as one
counts, since a chain of thought may correct itself.

Source: Self-Reference, Figures 5 to 11 (the forms that the prompts ask for); GSM8K's own `#### 18`.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from string import ascii_uppercase
from typing import Literal

from judgelm.parsing.verdicts import read_verdict
from judgelm.records import Unparsed

Task = Literal["number", "choice", "preference"]
"""The answer that a question asks for: a number (GSM8K), an option's letter (MMLU-Pro), the better of two answers."""

MOST_LETTERS = 10
"""MMLU-Pro has options A to J; so many where a sample does not say."""

_LONGEST_NUMBER = 50
_MOST_MARKS = 100
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


def final_answer(text: str, task: Task, *, letters: int = MOST_LETTERS, finished: bool = True) -> str | None:
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
    if len(plain) > _LONGEST_NUMBER or _NUMBER.fullmatch(plain) is None:
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
    for mark in islice(_last_first(_NUMBER_MARK, text), _MOST_MARKS):
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
