"""Parse scores in replies, and turn the probabilities of score lines into distributions.

Unambiguous scores are parsed regardless of formatting (`8, 6`, `**8** 6`, `8/10 6/10`, `Assistant 1: 8 Assistant 2:
6`). Ambiguous text (`8/6`, `8 6 5`, `8,5 6,5`) is `off_grammar`, and scores outside the judge's scale are
`out_of_range`.
"""

import math
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Literal, NamedTuple

from judgelm.errors import ConfigError
from judgelm.records import GradeDistribution, Grammar, PairDistribution, Scores, Unparsed, Winner

_NUMBER = r"[-+]?\d+(?:\.\d+)?"
_IN_QUOTES = re.compile(r"[\s*_\u200b\ufeff]*[\"“”`]")
_LEAD = re.compile(r"(?:the\s+)?(?:scores?|ratings?)\s*:\s*", re.IGNORECASE)
_BRACKETS = re.compile(r"[(\[]([^()\[\]]*)[)\]]\.?")
_BARE = re.compile(rf"({_NUMBER})(?:\s*[,;|，、；]\s*|\s+)({_NUMBER})\.?")
_OUT_OF = re.compile(rf"({_NUMBER})\s*/\s*(\d+)(?:\s*[,;|，、；]\s*|\s+)({_NUMBER})\s*/\s*(\d+)\.?")


def _outside_numbers(signs: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\d{signs}])(?<!\d\.)[{signs}]++|(?<![{signs}])[{signs}]++(?!\.?\d)")


_DRESS = (
    _outside_numbers("*_`"),
    _outside_numbers("\0\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff"),
)
"""Markdown and invisible characters, which are removed before parsing."""


def _named(name: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?:the\s+)?(?:assistant|answer|response)\s*({name})(?:'s)?(?:\s+(?:overall\s+)?(?:score|rating))?"
        r"(?:\s*(?::|=|-|\bis\b)\s*|\s+)"
        rf"({_NUMBER})(?:\s*/\s*(\d+))?(?![\d/])",
        re.IGNORECASE,
    )


_NAMED = _named("[12]")
_NAMED_ANY = _named(r"\d{1,3}")
_BETWEEN_NAMED = re.compile(r"^\s*(?:[,;|.]|and)?\s*", re.IGNORECASE)
_ANY_NUMBER = re.compile(_NUMBER)
_SCORE = rf"{_NUMBER}(?:\s*/\s*\d+)?"
_WHO = r"(?:assistant|answer|response)"
_HOW_MUCH = rf"({_NUMBER})(?:\s*/\s*(\d+))?(?![\d/])"
_PAIR_STATED = re.compile(
    rf"\b(?:output|scores?|ratings?)\s*+(?:(?:python\s++)?tuple\s*+)?(?:\bis\b|\bare\b)?\s*+:?\s*+"
    rf"\(\s*{_HOW_MUCH}\s*,\s*{_HOW_MUCH}\s*\)",
    re.IGNORECASE,
)
_LINE_STATED = re.compile(
    rf"[>\s-]*{_WHO}\s*([12])\s*:\s*{_HOW_MUCH}(?:\s*\([^()]*\))?\s*(?:[,;]|\band\b)?\s*"
    rf"{_WHO}\s*([12])\s*:\s*{_HOW_MUCH}[.,;]?(?:\s*\(.*\))?[.,;]?",
    re.IGNORECASE,
)
_HALF_STATED = re.compile(rf"[>\s-]*{_WHO}\s*([12])\s*:\s*{_HOW_MUCH}[.,;]?(?:\s*\(.*\))?[.,;]?", re.IGNORECASE)
_PHRASE_STATED = re.compile(
    rf"\b{_WHO}\s*([12])\s+(?:(?:receives|gets|deserves|is\s+given|has|with)\s+)?an?\s+(?:score|rating)\s+of\s+{_HOW_MUCH}",
    re.IGNORECASE,
)
_BOTH_STATED = re.compile(
    rf"\bboth\s+(?:of\s+them|{_WHO}s|{_WHO}\s*1\s+and\s+(?:{_WHO}\s*)?2)\s+(?:(?:receive|get|deserve|have)\s+)?"
    rf"an?\s+(?:score|rating)\s+of\s+{_HOW_MUCH}",
    re.IGNORECASE,
)
_LIST = re.compile(rf"{_SCORE}(?:(?:\s*[,;|，、；]\s*|\s+){_SCORE})*\.?")
_NUMBER_OF = re.compile(rf"({_NUMBER})(?:\s*/\s*(\d+))?")


def parse_pair(text: str, scale: tuple[float, float] = (1, 10)) -> Scores | Unparsed:
    r"""Parse the score line for a pair, which is the first non-blank line of `text`.

    Args:
        text: the judge's reply, with or without a reason after the score line.
        scale: the judge's lowest and highest score. A denominator (`8/10`) must equal the highest score.

    Example:
        >>> parse_pair("8 6\nThe first answer is more precise.")
        Scores(values=(8.0, 6.0))
        >>> parse_pair("8/6").why
        'two numbers, but their separator is ambiguous'

    Source: JudgeLM, section 3.2 and Figure 3.
    """
    result = _parse_beginning(text, scale)
    if isinstance(result, Scores) and _IN_QUOTES.match(text):
        lines = [line for line in text.splitlines() if line.strip()]
        others = (_parse_beginning(line, scale) for line in lines[1:])
        if any(isinstance(other, Scores) and other != result for other in others):
            return Unparsed("off_grammar", text, "the score line is in quotation marks and is followed by another one")
    return result


def parse_scores(text: str, count: int, scale: tuple[float, float] = (1, 10)) -> Scores | Unparsed:
    """Parse a line of `count` scores, which is the first non-blank line of `text`.

    Two scores are parsed by `parse_pair`. More scores must be named or all have the same separator, because `8,5 6`
    could be two or three scores.

    Example:
        >>> parse_scores("Assistant 2: 6, Assistant 1: 8, Assistant 3: 5", 3)
        Scores(values=(8.0, 6.0, 5.0))

    Source: JudgeLM, section 6.4 and Figures 5 and 6.
    """
    if count == 2:
        return parse_pair(text, scale)
    plain, below = _first_line(text)
    if bracketed := _BRACKETS.fullmatch(plain.replace("[[", "[").replace("]]", "]")):
        plain = bracketed[1].strip()
    if _LIST.fullmatch(plain):
        scores = _NUMBER_OF.findall(plain)
        joined = {between.strip() for between in re.split(_SCORE, plain)[1:-1]}
        denominators = [denominator or None for _, denominator in scores]
        if len(scores) == count and len(joined) <= 1 and len({out_of is None for out_of in denominators}) == 1:
            return _in_scale([score for score, _ in scores], denominators, scale, text)
    elif _NAMED_ANY.match(plain):
        return _parse_named("\n".join([plain, *below]), count, scale, text)
    return Unparsed("off_grammar", text, _why_off_grammar(plain, count))


def _first_line(text: str) -> tuple[str, list[str]]:
    first, *below = [line for line in _undressed(text).splitlines() if line.strip()] or [""]
    plain = first.strip().strip('"“”')
    return plain[lead.end() :] if (lead := _LEAD.match(plain)) else plain, below


def _undressed(text: str) -> str:
    text = text.replace("：", ":")
    for dress in _DRESS:
        text = dress.sub("", text)
    return text


def _parse_beginning(text: str, scale: tuple[float, float]) -> Scores | Unparsed:
    plain, below = _first_line(text)
    if bracketed := _BRACKETS.fullmatch(plain):
        plain = bracketed[1].strip()
    if bare := _BARE.fullmatch(plain):
        return _in_scale((bare[1], bare[2]), (None, None), scale, text)
    if out_of := _OUT_OF.fullmatch(plain):
        return _in_scale((out_of[1], out_of[3]), (out_of[2], out_of[4]), scale, text)
    if _NAMED.match(plain):
        return _parse_named("\n".join([plain, *below]), 2, scale, text, _NAMED)
    return Unparsed("off_grammar", text, _why_off_grammar(plain))


def parse_pair_anywhere(text: str, scale: tuple[float, float] = (1, 10)) -> Scores | Unparsed:
    """Parse two scores stated anywhere in a reply, for judges that reason before they score.

    A statement is a line of two scores, a line such as `Assistant 1: 8 (why)`, or a phrase such as `Assistant 1 a score
    of 8`. Two scores in brackets after "output", "scores", or "ratings" are also a statement (`The output tuple is (6,
    10)`). All statements must agree.
    """
    first_line = parse_pair(text, scale)
    if isinstance(first_line, Scores):
        return first_line
    stated: dict[str, dict[float, tuple[str, str | None]]] = {"1": {}, "2": {}}
    for answer, score, out_of in _statements(_undressed(text)):
        stated[answer].setdefault(float(score), (score, out_of))
    counts = [len(scores) for scores in stated.values()]
    if max(counts) > 1:
        return Unparsed("off_grammar", text, "the reply states two different scores for one answer")
    if min(counts) == 0:
        return Unparsed("off_grammar", text, "the reply does not state a score for each answer")
    (first,), (second,) = (scores.values() for scores in stated.values())
    return _in_scale((first[0], second[0]), (first[1], second[1]), scale, text)


def _statements(text: str) -> Iterator[tuple[str, str, str | None]]:
    for line in text.splitlines():
        plain = _first_line(line)[0].strip()
        bare = plain.removeprefix("(").removesuffix(")")
        if pair := _BARE.fullmatch(bare):
            yield from (("1", pair[1], None), ("2", pair[2], None))
        elif pair := _OUT_OF.fullmatch(bare):
            yield from (("1", pair[1], pair[2]), ("2", pair[3], pair[4]))
        elif pair := _LINE_STATED.fullmatch(plain):
            yield from ((pair[1], pair[2], pair[3]), (pair[4], pair[5], pair[6]))
        elif half := _HALF_STATED.fullmatch(plain):
            yield half[1], half[2], half[3]
    for pair in _PAIR_STATED.finditer(text):
        yield from (("1", pair[1], pair[2]), ("2", pair[3], pair[4]))
    for half in _PHRASE_STATED.finditer(text):
        yield half[1], half[2], half[3]
    for both in _BOTH_STATED.finditer(text):
        yield from (("1", both[1], both[2]), ("2", both[1], both[2]))


def parse_pair_original(text: str) -> Scores | Unparsed:
    """Parse a pair as the original JudgeLM code does: split at a single space or comma and pass both parts to `float`.

    Scores can be infinite or NaN, and a pair with NaN counts as a tie.

    Source: baaivision/JudgeLM, `judgelm/llm_judge/common.py`, `parse_score`.
    """
    parts = text.split("\n")[0].replace(",", " ").split(" ")
    if len(parts) != 2:
        return Unparsed("off_grammar", text, f"the first line has {len(parts)} parts, not 2")
    try:
        return Scores((float(parts[0]), float(parts[1])))
    except ValueError:
        return Unparsed("off_grammar", text, "the first line does not consist of two numbers")


def _parse_named(
    plain: str, count: int, scale: tuple[float, float], text: str, named: re.Pattern[str] = _NAMED_ANY
) -> Scores | Unparsed:
    matches: list[re.Match[str]] = []
    tail = rest = plain
    while len(matches) < count and (match := named.match(rest)):
        matches.append(match)
        tail = rest[match.end() :]
        rest = _BETWEEN_NAMED.sub("", tail)
    matches.sort(key=lambda match: int(match[1]))
    if [int(match[1]) for match in matches] != list(range(1, count + 1)):
        names = "1 and 2" if count == 2 else f"1 to {count}"
        return Unparsed("off_grammar", text, f"the scores of Assistant {names} are not next to each other")
    if tail.split("\n")[0].strip(' \t.,;"“”'):
        which = "the two scores" if count == 2 else "the scores"
        return Unparsed("off_grammar", text, f"{which} are followed by more text on the same line")
    return _in_scale([match[2] for match in matches], [match[3] for match in matches], scale, text)


def _in_scale(
    numbers: Sequence[str], denominators: Sequence[str | None], scale: tuple[float, float], text: str
) -> Scores | Unparsed:
    low, high = scale
    if any(below is not None and float(below) != high for below in denominators):
        return Unparsed("off_grammar", text, f"a score has a denominator other than {high:g}")
    values = tuple(map(float, numbers))
    if not all(low <= value <= high for value in values):
        written = " ".join(f"{value:g}" for value in values)
        return Unparsed("out_of_range", text, f"{written} is outside {low:g} to {high:g}")
    return Scores(values)


def _why_off_grammar(line: str, count: int = 2) -> str:
    if not line:
        return "the reply is empty"
    numbers = len(_ANY_NUMBER.findall(line))
    if numbers != count:
        return f"the first line has {numbers} numbers, not {count}"
    if count == 1:
        return "the first line contains other text besides the number"
    return f"{'two' if count == 2 else count} numbers, but their separator is ambiguous"


def split_score_line(text: str, scale: tuple[float, float]) -> tuple[str, str]:
    """Return the score line, including its line ending, and the reason after it, stripped of whitespace.

    The scores may be on two lines (`Assistant 1: 8`, `Assistant 2: 6`). If there are no scores, the first line counts
    as the score line.
    """
    lines = text.lstrip().splitlines(keepends=True)
    for count in (1, 2):
        line = "".join(lines[:count])
        if not isinstance(parse_pair(line, scale), Unparsed):
            return line, "".join(lines[count:]).strip()
    return "".join(lines[:1]), "".join(lines[1:]).strip()


OrderRule = Literal["mean", "given", "tie", "probability"]
"""How to combine the two orders into a verdict; see `judgelm.modes.pairwise.Pairwise`."""

LabelRule = Literal["as_judged", OrderRule]
"""How to combine the two orders into the label to compare; `as_judged` uses the run's verdict."""

MAX_VALUES = 100
"""Maximum number of possible scores for an answer."""

MIN_ASSIGNED = 0.5
"""Minimum total probability of all score lines that is required for a meaningful P(first better)."""

_MIN_LISTED = 1e-4
_DECIMALS = 9  # so that float noise cannot flip a verdict at 0.5


class ScoreLines(NamedTuple):
    """All score lines that a judge can write, in a fixed order.

    Attributes:
        values: possible scores for an answer, in ascending order.
        pairs: (s1, s2) for each line.
        texts: the text of each line as used in training, such as `8 6` or `8.5 6`.
    """

    values: tuple[float, ...]
    pairs: tuple[tuple[float, float], ...]
    texts: tuple[str, ...]


@cache
def score_lines(scale: tuple[float, float], step: float) -> ScoreLines:
    """Return all lines of two scores. Scores are multiples of `step`, including both ends of the scale.

    Raises:
        ConfigError: the step is not positive, or the scale has fewer than 2 or more than `MAX_VALUES` scores.

    Example:
        >>> score_lines((1, 2), 1).texts
        ('1 1', '1 2', '2 1', '2 2')
    """
    low, high = scale
    if not (math.isfinite(low) and math.isfinite(high) and math.isfinite(step) and step > 0):
        raise ConfigError(f"scale {low:g} to {high:g} in steps of {step:g}: the step must be a positive number")
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    if not 2 <= last - first + 1 <= MAX_VALUES:
        finding = f"scale {low:g} to {high:g} in steps of {step:g} has {max(0, last - first + 1)} scores"
        raise ConfigError(f"{finding}; distributions and retries require 2 to {MAX_VALUES}; correct judge.json")
    numbers = [f"{multiple * step:g}" for multiple in range(first, last + 1)]
    values = tuple(float(text) for text in numbers)
    return ScoreLines(
        values=values,
        pairs=tuple((s1, s2) for s1 in values for s2 in values),
        texts=tuple(f"{first} {second}" for first in numbers for second in numbers),
    )


def score_grammar(lines: ScoreLines) -> Grammar:
    """Return a grammar for these lines, with or without a line ending.

    If line endings were not allowed, a judge trained to write them would be forced to continue `8 1` as `8 10`.
    """
    numbers = sorted((f"{value:g}" for value in lines.values), key=len, reverse=True)
    score = "|".join(text.replace(".", r"\.") for text in numbers)
    return Grammar("regex", rf"({score}) ({score})\n?")


def pair_distribution(lines: ScoreLines, logprobs: Sequence[float], approximation: str = "") -> PairDistribution:
    """Return the distribution over score lines. The values are NaN if the total probability is 0.

    Args:
        lines: n score lines.
        logprobs: shape (n,), natural logarithms of disjoint probabilities, as in `Completion.candidate_logprobs`.
        approximation: the reason why the probabilities are not exact.

    Example:
        >>> distribution = pair_distribution(score_lines((1, 2), 1), [math.log(p) for p in (0.1, 0.2, 0.6, 0.1)])
        >>> round(distribution.first_better, 3), round(distribution.tie, 3)
        (0.7, 0.2)
    """
    masses = [(s1, s2, math.exp(logprob)) for (s1, s2), logprob in zip(lines.pairs, logprobs, strict=True)]
    assigned = math.fsum(mass for _, _, mass in masses)

    def mean(values: list[float]) -> float:
        return math.fsum(values) / assigned if assigned else math.nan

    tie = mean([mass for s1, s2, mass in masses if s1 == s2])
    listed = [(s1, s2, round(mass, 6)) for s1, s2, mass in masses if mass >= _MIN_LISTED]
    return PairDistribution(
        expected=(mean([s1 * mass for s1, _, mass in masses]), mean([s2 * mass for _, s2, mass in masses])),
        # min returns NaN if it is the first value
        first_better=min(mean([mass for s1, s2, mass in masses if s1 > s2]) + tie / 2, 1.0),
        tie=tie,
        unassigned=max(0.0, 1 - assigned),
        likeliest=tuple(sorted(listed, key=lambda line: (-line[2], line))),
        approximation=approximation,
    )


def grade_distribution(scores: Sequence[float], logprobs: Sequence[float], approximation: str) -> GradeDistribution:
    """Return the distribution over the scores of one answer. `expected` is NaN if the total probability is 0.

    Args:
        scores: shape (n,), score of each candidate; several candidates may have the same score.
        logprobs: shape (n,), as for `pair_distribution`.
        approximation: the reason why the probabilities are not exact.
    """
    masses: dict[float, float] = {}
    for score, logprob in zip(scores, logprobs, strict=True):
        masses[score] = masses.get(score, 0.0) + math.exp(logprob)
    assigned = math.fsum(masses.values())
    listed = [(score, round(mass, 6)) for score, mass in masses.items() if mass >= _MIN_LISTED]
    return GradeDistribution(
        expected=math.fsum(score * mass for score, mass in masses.items()) / assigned if assigned else math.nan,
        unassigned=max(0.0, 1 - assigned),
        likeliest=tuple(sorted(listed, key=lambda line: (-line[1], line[0]))),
        approximation=approximation,
    )


def is_assigned(distribution: PairDistribution) -> bool:
    """Return whether P(first better) is meaningful."""
    return 1 - distribution.unassigned >= MIN_ASSIGNED


def antisymmetrised(orders: Sequence[tuple[tuple[int, ...], PairDistribution]]) -> float | None:
    """Average P(first answer of the sample is better) over pairs of (order, distribution).

    Returns None if there are no orders or if the score lines of any order have a total probability below
    `MIN_ASSIGNED`.
    """
    if not orders or not all(is_assigned(distribution) for _, distribution in orders):
        return None
    first = [each.first_better if order == (0, 1) else 1 - each.first_better for order, each in orders]
    return math.fsum(first) / len(first)


def winner_by(probability: float, tie_threshold: float) -> Winner:
    """Return the more likely winner, or a tie if the probability is within `tie_threshold` (inclusive) of 0.5."""
    lead = probability - 0.5
    if abs(lead) <= tie_threshold + 1e-9:  # in floating point 0.55 - 0.5 > 0.05
        return "tie"
    return 1 if lead > 0 else 2


def likeliest_winner(first_better: float, tie: float) -> Winner:
    """Return the most likely outcome; if both answers are equally likely to be better, return a tie."""
    first, second = first_better - tie / 2, 1 - first_better - tie / 2
    lead = round(first - second, _DECIMALS)
    if lead == 0 or round(tie - max(first, second), _DECIMALS) > 0:
        return "tie"
    return 1 if lead > 0 else 2


def kind_of_approximation(text: str) -> str:
    """Remove the numbers from the description of an approximation."""
    return re.sub(r"(?:up to )?\b0\.\d+ of", "a part of", text)
