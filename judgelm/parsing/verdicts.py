"""Parse verdicts in replies, including rubric levels and labels in `<ans> ... </ans>`, and decide which verdict counts.

Source: QA-Judge, Tables 8 and 9, and its authors' code (tags); Play Favorites, appendix D (`Explanation: ..., Answer:
...`).
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from judgelm.records import Unparsed

_DOUBLE = re.compile(r"\[\[([^\[\]]{0,40})\]\]")
_SINGLE = re.compile(r"(?<!\[)\[([^\[\]]{0,40})\](?!\])")
_NAMED = re.compile(r"(?:assistant|response|answer) +", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z0-9]+")
_VERDICT_NOUNS = ("verdict", "judgment", "judgement", "decision")
_BEFORE_A_BARE_VERDICT = {"so", "therefore", "the", "my", "final", *_VERDICT_NOUNS, "answer", "response", "is"}

_MARK = re.compile(r"[\[<{:：]")
_QUOTED = 60
_CONTEXT = 200
"""Number of characters to search before and after a verdict."""
_NOUNS = (
    "|".join(_VERDICT_NOUNS) + "|ruling|assessment|evaluation|conclusion|answer|result|score|rating|grade|label|choice"
)
_FINAL = rf"\bfinal\s++(?P<noun>{_NOUNS})\b[\s*_]*+(?:is\b|are\b|[:：=–—-])?+[\s:：*_`\"'“(]*+"
_FINAL_BEFORE = re.compile(rf"{_FINAL}\Z", re.IGNORECASE)
_FINAL_LINE = re.compile(
    rf"[\s*_#`.)\d-]*+(?:(?:so|therefore|thus|hence|overall|and|in conclusion|conclusion)\b[\s,:]*+)?+"
    rf"(?:(?:the|my|our)\s++)?+{_FINAL}",
    re.IGNORECASE,
)
_EXPLAINED = re.compile(r"[(（.;:：!。–—-]|,?\s*(?:because|since|as)\b", re.IGNORECASE)
_CONDITION = re.compile(
    r"(?:^|[,;:.(])\s*had (?:it|the|this|that|its|he|she|they)\b|\bif (?:it|the|this|that|its)\b", re.IGNORECASE
)
_WOULD = re.compile(
    r"\b(?:would|could|might)(?:n't| not| also| then)? "
    r"(?:(?P<perfect>have (?:written|said|been|given|answered|called|chosen|judged|rated))|be|say|write|call|choose)"
    r"(?: (?:it|this|the|my|verdict))*[\s:*_`\"'“(]*\Z",
    re.IGNORECASE,
)
_NEGATED = re.compile(
    r"(?:\b(?:not|never|nor|neither|cannot|without|rather than|instead of|other than|anything but|nowhere near|"
    r"far from|short of|less than|more than)|n't|n’t)(?: (?:quite|really|even|ever))?"
    r"(?: (?:be|get|have|give|deserve|earn|reach|receive|merit|warrant|say|write|call it|go as far as))?"
    r"(?: (?:an?|the))?(?: (?:score|rating|grade)(?: of)?)?[\s*_`\"'“(]*\Z",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"\W*(?:(?:but|yet|though|which|or|unless)\b|(?i:wait|hmm+|scratch that|on second thoughts?|let me re-?check)\b)"
)


class StatedVerdict(NamedTuple):
    """A label, the position of its word in the reply, and the word as written."""

    label: str
    position: int
    written: str


class Statement(NamedTuple):
    """A verdict found in a reply.

    Attributes:
        start: start of the verdict's mark, which may be before the word.
        final: whether the verdict is marked as final.
    """

    verdict: StatedVerdict
    start: int
    final: bool = False


def settled(text: str, statements: Sequence[Statement], missing: str) -> StatedVerdict | Unparsed:
    r"""Return the last valid verdict in a reply. `missing` is the reason for the failure if there are no statements.

    Conflicting verdicts are `off_grammar`, unless one is marked as final. Verdicts that are conditional, negated, or
    retracted do not count (`[[1]]\nbut wait`).
    """
    if not statements:
        return Unparsed("off_grammar", text, missing)
    lines = _Lines(text)
    ordered = sorted((each for each in statements if each.verdict.label), key=lambda statement: statement.start)
    unread = [statement for statement in statements if not statement.verdict.label]
    if unread and not any(statement.start > unread[-1].start for statement in ordered):
        why = f"the final verdict {unread[-1].verdict.written!r} is not an expected label"
        return Unparsed("off_grammar", text, why)
    firm = [statement for statement in ordered if not lines.is_doubtful(statement)]
    finals = [statement for statement in firm if statement.final or lines.is_final(statement)]
    counted = [statement for statement in firm if statement.start >= finals[0].start] if finals else ordered
    if len({statement.verdict.label for statement in counted}) > 1:
        return Unparsed("off_grammar", text, _difference(counted, lines))
    if not firm:
        why = f"the verdict on line {lines.number(ordered[-1].start)} is negated, conditional, or retracted"
        return Unparsed("off_grammar", text, why)
    return (finals or firm)[-1].verdict


def read_verdict(text: str, labels: Mapping[str, str], *, brackets_only: bool = False) -> StatedVerdict | Unparsed:
    """Parse a reply's verdict.

    The verdict can be in double brackets, on the last line (with or without single brackets), or after "Final
    verdict:".

    Args:
        text: the reply.
        labels: maps labels to their words in the prompt, such as `correct` to `Correct`; case is ignored.
        brackets_only: whether the verdict must be in double brackets.
    """
    known = {word.lower(): label for label, word in labels.items()}
    lines = _nonblank(text)
    bracketed = [[_word(match, start) for match in _DOUBLE.finditer(line)] for start, line in lines]
    last = next((words for words in reversed(bracketed) if words), [])
    if not last and (brackets_only or not lines):
        return Unparsed("off_grammar", text, "no verdict in double brackets" if lines else "the reply is empty")
    unmarked = unmarked_verdicts(text, known)
    unknown = sorted({word.text.lower() for word in last if word.text.lower() not in known})
    if unknown and not any(statement.final and statement.start > last[-1].start for statement in unmarked):
        return Unparsed("off_grammar", text, f"the verdict {unknown[0]!r} is not one of {', '.join(known)}")
    marked = [_stated(word, known) for words in bracketed for word in words if word.text.lower() in known]
    return settled(text, marked + unmarked, "the reply does not end with a verdict")


def unmarked_verdicts(text: str, known: Mapping[str, str]) -> list[Statement]:
    """Find verdicts after "Final verdict:", on a line such as `Verdict: Correct`, or on the last line.

    `known` maps lower-case words to labels. An unknown verdict that is marked as final has an empty label.
    """
    lines = _nonblank(text)
    stated = list(_bare(lines, known))
    for index, (start, line) in enumerate(lines):
        lead = _FINAL_LINE.match(line[: 2 * _CONTEXT])
        if lead is None or (lead["noun"].lower() == "answer" and any(len(word) == 1 for word in known)):
            continue
        begin, rest = start + lead.end(), line[lead.end() :]
        if not rest and index + 1 < len(lines):
            begin, rest = lines[index + 1]
        word = _leading_label(rest, known)
        if word is not None:
            place = begin + word.start()
            stated.append(Statement(StatedVerdict(known[word[0].lower()], place, word[0]), place, final=True))
        elif line[lead.end() :] and lead["noun"].lower() in _VERDICT_NOUNS and not _MARK.search(rest):
            stated.append(Statement(StatedVerdict("", begin, rest.strip()[:_QUOTED]), begin, final=True))
    return stated


def _nonblank(text: str) -> list[tuple[int, str]]:
    return [(match.start(), match[0]) for match in re.finditer(r"[^\n]+", text) if match[0].strip()]


def _leading_label(rest: str, known: Mapping[str, str]) -> re.Match[str] | None:
    words = "|".join(re.escape(word) for word in sorted(known, key=len, reverse=True))
    lead = re.match(r"[\s*_`\"'“(]*+(?:(?:assistant|response|answer) +)?", rest, re.IGNORECASE)
    word = re.compile(rf"(?:{words})(?!\w)", re.IGNORECASE).match(rest, 0 if lead is None else lead.end())
    if word is None or word[0].lower() not in known:
        return None
    behind = rest[word.end() :].lstrip(" \t\r*_`\"'”)]")
    names = [re.escape(name) for name in known if len(name) > 1 and name != word[0].lower()]
    others = names and re.search(rf"\b(?:{'|'.join(names)})\b", behind, re.IGNORECASE)
    return word if not behind or (_EXPLAINED.match(behind) and not others) else None


def _bare(lines: Sequence[tuple[int, str]], known: Mapping[str, str]) -> Iterator[Statement]:
    for index, (start, line) in enumerate(lines):
        is_last = index == len(lines) - 1
        if len(line) > _CONTEXT and not is_last:
            continue
        words = [_word(match, start) for match in _SINGLE.finditer(line)] if is_last else []
        words = [word for word in words if word.text.lower() in known]
        for word in words or _bare_word(start, line, known, named_verdict=not is_last):
            yield _stated(word, known)


class _Word(NamedTuple):
    text: str
    position: int
    start: int


def _stated(word: _Word, known: Mapping[str, str]) -> Statement:
    return Statement(StatedVerdict(known[word.text.lower()], word.position, word.text), word.start)


def _word(match: re.Match[str], start: int) -> _Word:
    plain = match[1].lstrip(" \t*_\"'")
    plain = plain[named.end() :] if (named := _NAMED.match(plain)) else plain
    return _Word(plain.rstrip(" \t*_\"'"), start + match.end(1) - len(plain), start + match.start())


def _bare_word(start: int, line: str, known: Mapping[str, str], *, named_verdict: bool) -> list[_Word]:
    words = list(_WORD.finditer(line))
    if not words or words[-1][0].lower() not in known:
        return []
    before = [word[0].lower() for word in words[:-1]]
    alone = all(word in _BEFORE_A_BARE_VERDICT for word in before)
    if not alone or (named_verdict and not any(word in _VERDICT_NOUNS for word in before)):
        return []
    position = start + words[-1].start()
    return [_Word(words[-1][0], position, position)]


def _difference(statements: Sequence[Statement], lines: "_Lines") -> str:
    by_label = {statement.verdict.label: statement for statement in statements}
    numbers = {label: lines.number(statement.start) for label, statement in by_label.items()}
    if len(set(numbers.values())) == 1:
        return f"the same line contains {' and '.join(sorted(by_label))}"
    named = " and ".join(f"{label} on line {number}" for label, number in numbers.items())
    return f"conflicting verdicts: {named}"


class _Lines:
    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def number(self, position: int) -> int:
        return bisect_right(self._starts, position)

    def is_final(self, statement: Statement) -> bool:
        before = self._before(statement.start)
        if not before.strip(" \t*_`\"'“#>-"):
            return _FINAL_LINE.fullmatch(self._above(statement.start)) is not None
        quotes = before.rstrip(" \t\"'“`*_").count('"') + before.count("“") - before.count("”")
        return _FINAL_BEFORE.search(before) is not None and quotes % 2 == 0 and not before.lstrip().startswith(">")

    def is_doubtful(self, statement: Statement) -> bool:
        before, behind = self._before(statement.start), self._behind(statement)
        sentence = re.split(r"[.!?]\s", before)[-1] + " " + re.split(r"[.!?](?:\s|\Z)", behind)[0]
        would = _WOULD.search(before)
        if _NEGATED.search(before) or (would and (would["perfect"] or _CONDITION.search(sentence))):
            return True
        if not before.strip() and _NEGATED.search(self._above(statement.start)):
            return True
        return not behind.strip(" \t\r*_`\"'”])") and _GOES_ON.match(self._below(statement)) is not None

    def _before(self, position: int) -> str:
        start = self._starts[self.number(position) - 1]
        return self._text[max(start, position - _CONTEXT) : position]

    def _behind(self, statement: Statement) -> str:
        start = statement.verdict.position + len(statement.verdict.written)
        number = self.number(statement.verdict.position)
        end = self._starts[number] - 1 if number < len(self._starts) else len(self._text)
        return self._text[start : min(max(start, end), start + _CONTEXT)]

    def _above(self, position: int) -> str:
        start = self._starts[self.number(position) - 1]
        return self._text[max(0, start - _CONTEXT) : start].rstrip().rpartition("\n")[2]

    def _below(self, statement: Statement) -> str:
        number = self.number(statement.verdict.position)
        start = self._starts[number] if number < len(self._starts) else len(self._text)
        return self._text[start : start + _CONTEXT].lstrip()


_MARKUP = re.compile("[*_`\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_LINE_BREAK = re.compile(r"[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_ANSWER = re.compile(r"(?<!\w)(?P<final>final\s+)?answer\s*[:：]\s*", re.IGNORECASE)
_AROUND = " \t.,;:!\"“”'‘’()[]-。"


def parse_level(text: str, levels: Sequence[str]) -> str | Unparsed:
    """Parse the level at the end of a reply and return it as written in the prompt.

    The text after the last `Answer:` on the same line must be exactly a level, so "partially correct" is never parsed
    as "correct". Case, spaces, Markdown, quotes, brackets, and a full stop at the end are ignored.
    """
    cleaned = _MARKUP.sub("", text)
    if not cleaned.strip():
        return Unparsed("off_grammar", text, "the reply is empty")
    answers = _answers(cleaned)
    if not answers:
        return Unparsed("off_grammar", text, "the reply has no `Answer:`")
    known = {_plain_level(level): level for level in levels}
    unmarked = unmarked_verdicts(cleaned, known)
    last = answers[-1]
    later = any(final.final and final.start > last[1].start() for final in unmarked)
    if _plain_level(last[0]) not in known and not later:
        why = f"the text after `Answer:` is not a level: {last[0][:_QUOTED]!r}"
        return Unparsed("off_grammar", text, why)
    stated = []
    for answer, mark in answers:
        if (level := known.get(_plain_level(answer))) is not None:
            verdict = StatedVerdict(level, mark.end(), answer)
            stated.append(Statement(verdict, mark.start(), final=mark["final"] is not None))
    result = settled(cleaned, [*stated, *unmarked], "the reply has no `Answer:`")
    return Unparsed("off_grammar", text, result.why) if isinstance(result, Unparsed) else result.label


def _answers(text: str) -> list[tuple[str, re.Match[str]]]:
    marks, text = list(_ANSWER.finditer(text)), f"{text}\n"
    ends = [*(mark.start() for mark in marks), len(text)][1:]
    breaks = [_LINE_BREAK.search(text, mark.end(), end) for mark, end in zip(marks, ends, strict=True)]
    return [(text[mark.end() : at.start()], mark) for mark, at in zip(marks, breaks, strict=True) if at is not None]


def _plain_level(level: str) -> str:
    return " ".join(_MARKUP.sub("", level).split()).strip(_AROUND).casefold()


TagRule = Literal["first", "last_on_line", "second", "last"]
"""Which `<ans> ... </ans>` contains the answer. If there are no tags, `first` uses the whole reply; with the other
rules, there is no answer.

`first` searches across lines. `last_on_line` searches single lines, for Mistral judges, whose decoded text begins with
the prompt and its tags. `second` and `last` search across lines and ignore case.
"""

QaLabel = Literal["correct", "incorrect"]

QaLabelRule = Literal["strict", "original", "original_mistral"]
"""`strict` accepts either word in any formatting; any other reply fails. With `original`, a reply is correct if its
first tags (or the whole reply, if there are no tags) contain exactly CORRECT. `original_mistral` uses the last tags on
a single line instead. Under both original rules, replies with neither word count as incorrect and are also failures in
`Judgment.shown`.
"""

_FIRST = re.compile(r"<ans>(.*?)</ans>", re.DOTALL)
_ON_LINE = re.compile(r"<ans>(.*?)</ans>")
_ANY_CASE = re.compile(r"<ans>(.*?)</ans>", re.DOTALL | re.IGNORECASE)
_INNERMOST = re.compile(r"<ans>((?:(?!<ans>).)*?)</ans>", re.DOTALL | re.IGNORECASE)
_CLOSING = re.compile("</ans>")
_CLOSING_ANY_CASE = re.compile("</ans>", re.IGNORECASE)
_DRESS = re.compile(r"</?(?:b|i|em|strong)>|[\s\"'`“”‘’*_.,;:!()\[\]]", re.IGNORECASE)
_LABEL_WORD = re.compile("(?:in)?correct", re.IGNORECASE)
_LABELS: dict[str, QaLabel] = {"correct": "correct", "incorrect": "incorrect"}


def tagged_answer(text: str, rule: TagRule = "first") -> str:
    """Return the answer in a reply. If there are no tags, return an empty string or, for `first`, the whole reply."""
    if rule == "first":
        match = _FIRST.search(_closed(text, _CLOSING))
        return text if match is None else match[1].strip()
    if rule == "last_on_line":
        inside = [content for line in text.split("\n") for content in _ON_LINE.findall(_closed(line, _CLOSING))]
    else:
        inside = _ANY_CASE.findall(_closed(text, _CLOSING_ANY_CASE))
    if rule == "second":
        return inside[1].strip() if len(inside) > 1 else ""
    return inside[-1].strip() if inside else ""


def _closed(text: str, closing: re.Pattern[str]) -> str:
    """Return the text up to its last closing tag, because each later opening tag would trigger a search to the end."""
    ends = [match.end() for match in closing.finditer(text)]
    return text[: ends[-1]] if ends else ""


def label_by(rule: QaLabelRule, text: str) -> str | Unparsed:
    """Parse the label in a reply with this rule."""
    if rule != "strict":
        return read_label_original(text, "first" if rule == "original" else "last_on_line")
    verdict = read_label(text)
    return verdict if isinstance(verdict, Unparsed) else verdict.label


def read_label(text: str) -> StatedVerdict | Unparsed:
    """Parse CORRECT or INCORRECT in any formatting.

    Inside tags, either word is accepted in any case, in quotes, in bold, or with a full stop; other words are ignored.
    If there are no tags, the word must be the whole reply or be marked as final.
    """
    inside = list(_INNERMOST.finditer(_closed(text, _CLOSING_ANY_CASE)))
    read = [(_labelled(tag[1], tag.start(1)), tag.start()) for tag in inside] or [(_labelled(text, 0), 0)]
    why = (
        "no tag contains CORRECT or INCORRECT"
        if inside
        else "there are no <ans> tags, and the reply is not just CORRECT or INCORRECT"
    )
    unmarked = unmarked_verdicts(text, _LABELS)
    if not inside:  # a bare word after reasons is not an answer, but a final verdict is
        unmarked = [statement for statement in unmarked if statement.final]
    marked = [Statement(verdict, start) for verdict, start in read if verdict is not None]
    if not marked and not any(statement.final for statement in unmarked):
        return Unparsed("off_grammar", text, why)
    return settled(text, [*marked, *unmarked], why)


def _labelled(text: str, start: int) -> StatedVerdict | None:
    label = _LABELS.get(_DRESS.sub("", text).lower())
    word = _LABEL_WORD.search(text)
    return None if label is None or word is None else StatedVerdict(label, start + word.start(), word[0])


def read_label_original(text: str, rule: Literal["first", "last_on_line"]) -> QaLabel | Unparsed:
    """Accept only CORRECT or INCORRECT as the answer. The original code treats anything else as INCORRECT."""
    answer = tagged_answer(text, rule).strip()
    if answer in ("CORRECT", "INCORRECT"):
        return _LABELS[answer.lower()]
    return Unparsed("off_grammar", text, f"the answer found by rule {rule} is neither CORRECT nor INCORRECT")
