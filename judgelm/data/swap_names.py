"""Swap the answer names in a judgment's text when the answers are shown in a different order.

"Assistant 1 and 2 receive 8 and 6, respectively" becomes "Assistant 2 and 1 receive 8 and 6, respectively". Swapping
again restores the text. Text quoted from an answer is not changed. If it is unclear whether a word refers to an answer,
the result is `Ambiguous`. Only English is supported; quotations must be in quotation marks. Score lines are not
handled.

Source: JudgeLM, section 5.1 and Figure 15 (swap augmentation), which replaces only two literals.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

OnAmbiguous = Literal["keep", "drop_reason"]
"""If a reason is ambiguous, keep the pair unswapped, or swap the pair and drop the reason."""

AmbiguityCode = Literal[
    "bare_name",
    "former_latter",
    "no_such_answer",
    "position_word",
    "quoted_name",
    "said_in_answer",
    "unnamed_ordinal",
    "unnamed_scores",
    "unsure_noun",
    "value_or_name",
]
_Reading = Literal["name", "plain"] | AmbiguityCode

_TOP_SCORE = 10
_AROUND = 30
_REACH = 64
_MAX_JOIN = 12
_MAX_SENTENCE = 500
_MAX_NAME_WORDS = 3  # a quotation of up to this many words may be only a name


@dataclass(frozen=True, slots=True, kw_only=True)
class SwappedText:
    """The text for the new order, and the number of names that it contains."""

    text: str
    mentions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous:
    """A text with unresolvable names; `excerpt` shows the unclear words in context."""

    code: AmbiguityCode
    excerpt: str


def swap_names(text: str, order: tuple[int, ...], answers: Sequence[str] = ()) -> SwappedText | Ambiguous:
    """Swap the names in a judgment's text to match a different order of the answers.

    Args:
        text: the reason, without its score line.
        order: `order[i]` is the old 0-based position of the answer that is now at position i; `(1, 0)` swaps a pair.
        answers: texts that may be quoted: answers, question, and reference. Other quotations that contain a name are
            ambiguous.

    Raises:
        ValueError: `order` is not a permutation of two to nine positions.

    Example:
        >>> swap_names("Assistant 1 is right, Assistant 2 is not.", (1, 0)).text
        'Assistant 2 is right, Assistant 1 is not.'
        >>> swap_names("The better one is 2.", (1, 0))
        Ambiguous(code='bare_name', excerpt='The better one is 2.')
    """
    if sorted(order) != list(range(len(order))) or len(order) not in range(2, 10):
        raise ValueError(f"order {order}: expected each position from 0 to {len(order) - 1} once, for 2 to 9 answers")
    names = _find_names(text, len(order), answers)
    if isinstance(names, Ambiguous):
        return names
    parts, at = [], 0
    for name in names:
        parts += [text[at : name.start()], _renamed(name, order.index(_position_of(name)))]
        at = name.end()
    return SwappedText(text="".join([*parts, text[at:]]), mentions=len(names))


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ORDINALS = _words("first second third fourth fifth sixth seventh eighth ninth")
NUMERALS = _words("one two three four five six seven eight nine")
_LETTERS = "ABCDEFGHI"
_NTH = _words("1st 2nd 3rd 4th 5th 6th 7th 8th 9th")
_PLACEMENTS = _words("above below left right previous preceding next last earlier later")

# Nouns, sorted by how likely they are to refer to a judged answer when followed by a number.
_ASSISTANTS = _words("assistant chatbot bot")
_ANSWERS = _words("answer response reply")
# Questions may also be about these. They refer to an answer unless an answer contains the same words ("Model A").
_LIKELY = _words("ai agent candidate completion contestant llm model output solution submission")
# With a number, these are usually a part of an answer but may also be a synonym for it.
_UNSURE = _words("choice code email essay option poem program review story summary system version")
_UNSURE_ORDINAL = (*_LIKELY, *_UNSURE, "approach", "example", "explanation", "text", "translation")
_NAMING = (*_ASSISTANTS, *_ANSWERS, *_LIKELY, *_UNSURE)
# Before a lower-case noun, these can make "the answer 2" a value, and "to answer 2 questions" a verb.
_VALUED = _words(
    "the an its their his her this that correct incorrect final right wrong numerical expected is to not should must "
    "could can cannot will would did does only then it they you we fully"
)
_VERBS = _words(
    "is was are were has had have does did do provides provided provide gives gave give lacks lacked fails failed "
    "receives received receive gets got wins won scores scored deserves deserved would could should can may might "
    "offers offered includes included contains contained answers answered explains explained appears appeared seems "
    "seemed performs performed states stated mentions mentioned makes made addresses addressed goes went uses used "
    "covers covered focuses focused presents presented also only but being"
)


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


def _nouns(words: Iterable[str]) -> str:
    return rf"(?:{_any(word[:-1] + '(?:y|ie)' if word.endswith('y') else word for word in words)})"


# Word -> its 0-based position, in the three spellings that can be restored (`first`, `First`, `FIRST`).
_POSITIONS: dict[str, int] = {
    word: position
    for table in (ORDINALS, NUMERALS, _LETTERS, _NTH)
    for position, low in enumerate(table)
    for word in (low, low.lower(), low.capitalize(), low.upper())
}

# Numbers and letters. The empty named group at the end of the match indicates the form.
_NUMBERED = re.compile(
    r"""[0-9A-I](?:
        (?P<letter>(?<=[A-I])(?<!\w.)(?!\w))
      | (?P<nth>(?<=[1-9])(?<![0-9].)(?:st|nd|rd|th|ST|ND|RD|TH)(?!\w))
      | (?P<number>(?<=[0-9])(?<![0-9].)(?<![0-9]\..)[0-9]*(?:\.[0-9]+)?(?!\w|,[0-9]{3}(?![0-9])|\.[0-9])))""",
    re.VERBOSE,
)


def _word_patterns() -> dict[str, re.Pattern[str]]:
    forms = {"ordinal": ORDINALS, "numeral": NUMERALS, "side": ("former", "latter"), "placement": _PLACEMENTS}
    patterns = {
        word: re.compile(
            rf"(?:{_any((word, word.capitalize(), word.upper()))})(?P<{form}>(?<!\w.{{{len(word)}}})(?!\w))"
        )
        for form, words in forms.items()
        for word in words
    }
    patterns |= {f"({low})": re.compile(rf"{low}(?P<bracketed>(?<=\(.)(?=\)))") for low in _LETTERS.lower()}
    patterns["ssistant "] = re.compile(r"(?<=ssistant )[a-i](?P<low_letter>(?!\w))")
    return patterns


_WORDS = _word_patterns()


def _candidates(text: str) -> list[re.Match[str]]:
    """One pattern per word is faster than a single combined pattern."""
    low = text.lower()
    matches = list(_NUMBERED.finditer(text))
    for word, pattern in _WORDS.items():
        if word in low:
            matches += pattern.finditer(text)
    return sorted(matches, key=re.Match.start)


def _position_of(match: re.Match[str]) -> int:
    if match.lastgroup != "number":
        return _POSITIONS.get(match[0], -1)
    return int(match[0]) - 1 if len(match[0]) == 1 else -1


def _renamed(match: re.Match[str], position: int) -> str:
    tables = {"letter": _LETTERS, "bracketed": _LETTERS.lower(), "nth": _NTH, "ordinal": ORDINALS, "numeral": NUMERALS}
    if match.lastgroup == "number":
        return str(position + 1)
    word, replacement = match[0], tables[match.lastgroup or ""][position]
    if word.isupper() or (match.lastgroup == "nth" and word[-1].isupper()):
        return replacement.upper()
    return replacement.capitalize() if word[0].isupper() else replacement


_SINGULAR = {form: noun for noun in _NAMING for form in (noun, f"{noun}s", noun.removesuffix("y") + "ies")}
_GAP = " \t*_[(#\"“'‘`-"
_NUMBER_WORDS = (" number", " no.", " nr.")
_LAST_LETTERS = re.compile(r"[A-Za-z]+$")


class _NounBefore(NamedTuple):
    noun: str
    lead: str
    gap: str
    lower: bool


def _noun_before(text: str, at: int) -> _NounBefore | None:
    head = text[max(0, at - _REACH) : at]
    stem = head.rstrip(_GAP)
    if stem.lower().endswith(_NUMBER_WORDS):
        stem = stem[: stem.rindex(" ")].rstrip(_GAP)
    gap = head[len(stem) :]
    words = stem.rsplit(maxsplit=2)[-2:]
    last = _LAST_LETTERS.search(stem, max(0, len(stem) - len(words[-1]))) if words else None
    noun = _SINGULAR.get(last[0].lower()) if last else None
    if last is None or noun is None or ("-" in gap and gap != "-"):
        return None
    if not gap and noun not in (*_ASSISTANTS, *_ANSWERS):
        return None
    return _NounBefore(noun, words[0].lower() if len(words) > 1 else "", gap, last[0].islower())


# Between two names in a list: "Assistants 1, 2 and 3", "Assistant 1's and 2's".
_JOIN = re.compile(
    r"(?:['’]s?)?[*_)\]]*"
    r"(?:[ \t]*(?P<comma>,)[ \t]*|(?:[ \t]*,)?[ \t]++(?:and|or|nor|vs\.?|versus)[ \t]+|[ \t]*[&/<>][ \t]*)[*_(\[\#]*"
)
_LIST_GOES_ON = re.compile(r"[*_)\]]*(?:,|,?[ \t]+(?:and|or))[ \t]+[*_(\[\#]*(?:[0-9]+\b|[A-I]\b|[a-i]\))")
# If one of these follows, the last number in "Assistant 1 and 2" is a count.
_COUNTED = re.compile(
    r"[ \t]+(?:other|more|further|additional|extra|of|out|different|examples|points|reasons|steps|tips)\b"
)
# If one of these follows, the number after a noun is a value or a quantity: "1/10", "2%", "1 out of".
_QUANTITY = re.compile(r"/[0-9]{2}|/[3-9]|%|°|[ \t]*[+^×][ \t]*\w|[ \t]+(?:out of|points?\b|percent)")

_ORDINAL = rf"(?:{_any(ORDINALS)}|[1-9](?:st|nd|rd|th))"
# "first and second assistants", "first of the two answers", "second one": the noun after an ordinal or a side.
_NOUN_AFTER = re.compile(
    rf"[*_]*(?:(?:\s*[,/&]|(?:\s*,)?\s++(?:and|or|nor|vs\.?|versus))\s*(?:the\s+)?[*_]*{_ORDINAL}[*_]*)*"
    r"\s++(?:of\s+(?:the|these)\s+(?:(?:two|three|four)\s+)?|(?P<several>(?:two|three|four)\s+))?"
    r"(?:(?:ai|given|provided|presented|displayed|shown|chat|candidate|language)\s+)*"
    rf"(?:(?P<assistant>{_nouns(_ASSISTANTS)})|(?P<answer>{_nouns(_ANSWERS)})|(?P<one>one)|{_nouns(_UNSURE_ORDINAL)})(?:e?s)?\b",
    re.I,
)
# "the first answer given by Assistant 2": the noun is followed by an owner.
_OWNED_AFTER = re.compile(rf"\s+(?:(?:given|provided)\s+)?(?:by|from|of|in)\s+(?:the\s+)?{_nouns(_NAMING)}", re.I)
_THE = re.compile(rf"(?<![a-z])(?:the|both|between|{_ORDINAL}[*_]*(?:\s+(?:and|or)|/|,))\s*[*_\"“'‘]*$", re.I)
# "a second answer", "its first answer" may be one of many within an answer.
_OWNED_BEFORE = re.compile(
    r"(?:(?<![a-z])(?:its|their|his|her|my|your|our|(?-i:a)|an|another|each|every)|(?<!ssistant)['’]s)\s+(?:own\s+)?[*_]*$",
    re.I,
)
# Positions of a name: as a subject, as the preferred answer, or after another name.
_SUBJECT_BEFORE = re.compile(
    r"(?:^|[.!?;:\n]\s*|(?:\b(?:while|but|whereas|because|since|although|though|that|with|both|either|neither|however,?"
    r"|therefore,?|overall,?|hence,?|so)|[^\d\s)(]\s+(?:and|or|nor))\s+)(?:[-*][ \t]+)?[*_\#(\[]*$|(?-i:\b[A-IR])$",
    re.I,
)
_PREFERRED_BEFORE = re.compile(
    r"\b(?:prefer(?:s|red)?|pick(?:ed)?|choose|chose|(?:better|worse|stronger|weaker)\s+than|over|beats?|outperforms?|(?:superior|inferior)\s+to"
    r"|compared\s+(?:to|with)|as\s+well\s+as"
    r"|(?:winner|verdict|preference|(?:better|best)(?:\s+(?:one|answer|response|assistant))?)(?:\s+is)?\s*[:=]?)\s*[*_(\[]*$",
    re.I,
)
# Before the second of two compared answers: "Assistant 1's is clearer than 2's".
_COMPARED_BEFORE = re.compile(
    r"(?:\b(?:than|not|against|rather\s+than|instead\s+of|unlike|then|versus|vs\.?)|[,;+])\s*[*_(\[]*$", re.I
)
_SUBJECT_AFTER = re.compile(
    rf"[*_)\]]*(?:['’]s\b|\s+(?:{_any(_VERBS)}|[a-z]+ly)\b)|(?P<label>[*_)\]]*(?::|\s+(?:and|or|nor)\b))", re.I
)
_NOTHING_AFTER = re.compile(
    rf"[*_)\]]*(?:['’]s\b|\s*(?:[.,;:!?)]|$)|\s+(?:{_any(_VERBS)}|[a-z]+ly|in|for|with|as|to|on|by|over|than)\b)", re.I
)
_LABELLED_BEFORE = re.compile(r"(?:(?:^|\n)[ \t]*(?:[-*][ \t]+)?|\b(?:both|either|neither)\s+)[*_\#(\[]*$", re.I)
_VERDICT_BEFORE = re.compile(r"\[\[(?:[A-I][<>=]+)?$")
_SHOWN_BEFORE = re.compile(r"\b(?:presented|shown|listed|displayed)\s+$", re.I)
_JUDGED = _nouns((*_ASSISTANTS, *_ANSWERS))
_PLACED_NOUN = re.compile(rf"(?:-hand|-most)?\s+{_JUDGED}(?!\w)", re.I)
_NOUN_PLACED = re.compile(rf"\b{_JUDGED}\s+(?P<side>on\s+the\s+)?$", re.I)


@dataclass(kw_only=True)
class _NameReader:
    text: str
    count: int
    sources: Sequence[str]
    names: list[re.Match[str]] = field(default_factory=list)

    def read(self, match: re.Match[str]) -> _Reading:
        match match.lastgroup:
            case "ordinal" | "nth":
                return self._ordinal(match)
            case "side":
                return self._side(match)
            case "placement":
                return self._placement(match)
            case "low_letter":  # "assistant b": a name, or the article of "gave the assistant a chance"
                return "bare_name" if _NOTHING_AFTER.match(self.text, match.end()) else "plain"
            case _:
                return self._numbered(match)

    def _before(self, pattern: re.Pattern[str], match: re.Match[str]) -> re.Match[str] | None:
        return pattern.search(self.text, max(0, match.start() - _REACH), match.start())

    def _numbered(self, match: re.Match[str]) -> _Reading:
        noun, end = _noun_before(self.text, match.start()), match.end()
        if noun is not None:
            return self._after_noun(match, noun)
        if _position_of(match) not in range(self.count):
            return "plain"
        listed = self._in_list(match)
        if listed != "plain" or match.lastgroup == "numeral":
            return listed
        if match.lastgroup == "letter" and self._before(_VERDICT_BEFORE, match):
            return "name"
        after = _SUBJECT_AFTER.match(self.text, end)
        subject = after and self._before(_LABELLED_BEFORE if after["label"] else _SUBJECT_BEFORE, match)
        chosen = self._before(_PREFERRED_BEFORE, match) or self._compared(match)
        preferred = chosen and _NOTHING_AFTER.match(self.text, end)
        return "bare_name" if subject or preferred else "plain"

    def _compared(self, match: re.Match[str]) -> bool:
        last = self.names[-1] if self.names else None
        if last is None or last.lastgroup != match.lastgroup or match.start() - last.end() > _MAX_SENTENCE:
            return False
        ended = _SENTENCE_END.search(self.text, last.end(), match.start())
        return ended is None and self._before(_COMPARED_BEFORE, match) is not None

    def _after_noun(self, match: re.Match[str], before: _NounBefore) -> _Reading:
        noun, lead, gap, lower = before
        text, end = self.text, match.end()
        if lead == "reference" or (noun not in _ASSISTANTS and _QUANTITY.match(text, end)):
            return "plain"
        if _position_of(match) not in range(self.count):
            return "no_such_answer" if noun in _ASSISTANTS and match.lastgroup == "number" else "plain"
        if match.lastgroup == "numeral" and match[0].islower():
            named = _NOTHING_AFTER.match(text, end) and noun in (*_ASSISTANTS, *_ANSWERS)
            return "value_or_name" if named or noun in _ASSISTANTS else "plain"
        if any(mark in gap for mark in "\"“'‘`"):
            return "quoted_name"
        if lower and "(" in gap and not _LIST_GOES_ON.match(text, end):
            return "bare_name"  # "the assistant (1) is clear and (2) is brief"
        may_be_value = lower and noun in ("answer", "output", "solution") and match.lastgroup == "number"
        if may_be_value and (lead in _VALUED or noun != "answer" or _COUNTED.match(text, end)):
            return "value_or_name"
        if noun in (*_ASSISTANTS, *_ANSWERS):
            return "name"
        marks = [_renamed(match, position) for position in range(self.count)]
        quoted = any(f"{noun} {mark}".lower() in source for mark in marks for source in self.sources)
        if noun in _UNSURE:
            return "plain" if quoted else "unsure_noun"
        return "said_in_answer" if quoted else "name"

    def _in_list(self, match: re.Match[str]) -> _Reading:
        last, end = self.names[-1] if self.names else None, match.end()
        if last is None or last.lastgroup != match.lastgroup or match.start() - last.end() > _MAX_JOIN:
            return "plain"
        join = _JOIN.fullmatch(self.text, last.end(), match.start())
        if join is None:
            return "plain"
        if _COUNTED.match(self.text, end):
            return "plain" if join["comma"] else "bare_name"
        if join["comma"] is None or _LIST_GOES_ON.match(self.text, end):
            return "name"
        return "bare_name" if _NOTHING_AFTER.match(self.text, end) else "plain"

    def _ordinal(self, match: re.Match[str]) -> _Reading:
        the, noun = self._before(_THE, match), _NOUN_AFTER.match(self.text, match.end())
        if noun is None:
            if self._before(_SHOWN_BEFORE, match):
                return "position_word"
            return "unnamed_ordinal" if the and _NOTHING_AFTER.match(self.text, match.end()) else "plain"
        if noun["several"] or not (noun["assistant"] or noun["answer"]):
            known = not noun["one"] or _position_of(match) in range(self.count)
            return "unnamed_ordinal" if the and known else "plain"
        if noun["assistant"] or (the and not _OWNED_AFTER.match(self.text, noun.end())):
            return "name" if _position_of(match) in range(self.count) else "no_such_answer"
        return "plain" if self._before(_OWNED_BEFORE, match) else "unnamed_ordinal"

    def _side(self, match: re.Match[str]) -> _Reading:
        """Classify "former" and "latter". They are not changed, because the names before them are swapped in place.

        If fewer than two names precede, "the latter answer" means the answer that is shown last.
        """
        if len({_position_of(name) for name in self.names}) > 1:
            return "plain"
        end = match.end()
        return "former_latter" if _NOUN_AFTER.match(self.text, end) or _NOTHING_AFTER.match(self.text, end) else "plain"

    def _placement(self, match: re.Match[str]) -> _Reading:
        word = match[0].lower()
        if word != "right" and _PLACED_NOUN.match(self.text, match.end()):
            return "position_word"
        noun = self._before(_NOUN_PLACED, match)
        behind = noun and (noun["side"] or word in ("above", "below")) and _NOTHING_AFTER.match(self.text, match.end())
        return "position_word" if behind else "plain"


def _find_names(text: str, count: int, answers: Sequence[str]) -> list[re.Match[str]] | Ambiguous:
    reader = _NameReader(text=text, count=count, sources=[_plain_words(answer) for answer in answers])
    quotes: list[re.Match[str]] | None = None
    numbers: list[re.Match[str]] = []
    for match in _candidates(text):
        reading = reader.read(match)
        if reading == "plain":
            if match.lastgroup == "number" and float(match[0]) <= _TOP_SCORE:
                numbers.append(match)
            continue
        quotes = find_quotes(text) if quotes is None else quotes
        quote = quotes[index] if (index := bisect_left(quotes, match.start(), key=re.Match.start) - 1) >= 0 else None
        if quote is not None and match.end() < quote.end() and reading != "quoted_name":
            quoted = _plain_words(text[quote.start() : quote.end()]).strip(_EDGE)
            own = len(quoted.split()) > _MAX_NAME_WORDS and any(quoted in source for source in reader.sources)
            reading = "plain" if own else "quoted_name"
        if reading == "name":
            reader.names.append(match)
        elif reading != "plain":
            return Ambiguous(code=reading, excerpt=_excerpt(text, *match.span()))
    unnamed = _unnamed_scores(text, numbers, reader.names)
    return Ambiguous(code="unnamed_scores", excerpt=_excerpt(text, *unnamed)) if unnamed else reader.names


def _excerpt(text: str, start: int, end: int) -> str:
    return text[max(0, start - _AROUND) : end + _AROUND]


# Quotations: text in straight, curly or single quotation marks, backticks, a code fence, or a block quote.
_QUOTED = re.compile(
    r"```.*?```|``[^`]+``|`[^`\n]+`"
    r"|“[^”]*”"
    r"|(?<!\w)\"(?=\S)[^\"]*(?<=\S)\"(?!\w)"
    r"|(?<!\w)‘(?=\S)(?:[^‘’]|(?<=\w)’(?=\w))*’(?!\w)"
    r"|(?<!\w)'(?=\S)(?:[^'\n]|(?<=\w)'(?=\w))*(?<=\S)'(?!\w)"
    r"|^>[^\n]*(?:\n>[^\n]*)*",
    re.DOTALL | re.MULTILINE,
)
_OPENING = re.compile(r"[\"“`‘>]|(?<!\w)'")
_EDGE = " .,;:!?-…"


def find_quotes(text: str) -> list[re.Match[str]]:
    """Return all outermost quotations in order."""
    if not _OPENING.search(text):
        return []
    closed = text.rfind("”") + 1
    searched = text[:closed] + text[closed:].replace("“", "«")  # do not search for the end of unclosed quotes again
    return list(_QUOTED.finditer(searched))


def _plain_words(text: str) -> str:
    return " ".join(re.sub(r"[\"“”'‘’`>*]", "", text).lower().split())


# Text between two scores.
_SCORES_JOIN = re.compile(r"(?:/10)?[*_]*(?:\s*,\s*|[ \t]+(?:and|vs\.?|versus|to)[ \t]+|[ \t]*[&:-][ \t]*|[ \t]+)[*_]*")
_SCALE_BEFORE = re.compile(r"\b(?:scale(?:\s+(?:of|from))?|from|between|range(?:\s+of)?)\s*\(?$", re.I)
_SCORES_BEFORE = re.compile(
    r"\b(?:scor(?:e|es|ed|ing)|rat(?:e|ed|ing|ings)|grades?|deserves?|gives?|gave|receives?|received|award(?:s|ed)?)\b",
    re.I,
)
_SCORES_AFTER = re.compile(r"\b(?:scor(?:e|es|ed|ing)|ratings?|grades?|respectively)\b", re.I)
_SENTENCE_END = re.compile(r"[.!?][\"”')\]]*\s+|\n\s*")
_SCORE_DRESS = " \t*_()[].#>"


def _unnamed_scores(
    text: str, numbers: Sequence[re.Match[str]], names: Sequence[re.Match[str]]
) -> tuple[int, int] | None:
    denominator = [match[0] == "10" and text[match.start() - 1] == "/" for match in numbers]
    scores = [number for number, below in zip(numbers, denominator, strict=True) if not below]
    pairs = [
        (first.start(), second.end())
        for first, second in pairwise(scores)
        if float(first[0]) != float(second[0]) and _SCORES_JOIN.fullmatch(text, first.end(), second.start())
    ]
    if not pairs:
        return None
    before, behind = ([match.start() for match in words.finditer(text)] for words in (_SCORES_BEFORE, _SCORES_AFTER))
    ends = list(_SENTENCE_END.finditer(text))
    starts = [0, *(end.end() for end in ends if not text[: end.end()].rstrip().endswith(":"))]
    starts_of_names: dict[int, list[int]] = {}
    for name in names:
        starts_of_names.setdefault(_position_of(name), []).append(name.start())
    for start, end in pairs:
        opening = starts[bisect_right(starts, start) - 1]
        last = bisect_left(ends, end, key=re.Match.start)
        closing = ends[last].start() if last < len(ends) else len(text)
        if _SCALE_BEFORE.search(text, max(0, start - _AROUND), start):
            continue
        if sum(_any_in(positions, opening, closing) for positions in starts_of_names.values()) > 1:
            continue
        line_start, line_end = text.rfind("\n", 0, start) + 1, text.find("\n", end)
        rest = text[line_start:start] + text[end : line_end if line_end >= 0 else len(text)]
        alone = not rest.removesuffix("/10").strip(_SCORE_DRESS)
        if alone or _any_in(before, opening, start) or _any_in(behind, end, closing):
            return start, end
    return None


def _any_in(positions: Sequence[int], start: int, end: int) -> bool:
    index = bisect_left(positions, start)
    return index < len(positions) and positions[index] < end
