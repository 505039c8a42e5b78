"""Word tables and patterns of the names that judgments give answers, and of their contexts.

Word tables first, then patterns built of them; `mentions` applies the patterns and `swap_names` builds the text. Words
are matched in three cases only (`first`, `First`, `FIRST`), because another one (`fIRST`) could not be restored.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
NUMERALS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LETTERS = "ABCDEFGHI"
SIDES = ("former", "latter")
_NTH = ("st", "nd", "rd", *["th"] * 6)
_PLACEMENTS = ("above", "below", "left", "right", "previous", "preceding", "next", "last", "earlier", "later")

# Nouns, by how sure it is that they and a number name an answer that is judged.
ASSISTANT_NOUNS = ("assistant", "chatbot", "bot")
ANSWER_NOUNS = ("answer", "response", "reply")
# A question may be about these as well: they name an answer unless an answer has the very words ("Model A").
LIKELY_NOUNS = (
    "ai",
    "agent",
    "candidate",
    "completion",
    "contestant",
    "llm",
    "model",
    "output",
    "solution",
    "submission",
)
# With a number these are most often what an answer holds; they may also be another word for the answer.
UNSURE_NOUNS = (
    "choice",
    "code",
    "email",
    "essay",
    "option",
    "poem",
    "program",
    "review",
    "story",
    "summary",
    "system",
    "version",
)
_UNSURE_ORDINAL = (*LIKELY_NOUNS, *UNSURE_NOUNS, "approach", "example", "explanation", "text", "translation")
# Before a lower-case noun these may make "the answer 2" a value, and "to answer 2 questions" a verb.
VALUED = _words("the an its their his her this that correct incorrect final right wrong numerical expected is")
VERBAL = _words("to not should must could can cannot will would did does only then it they you we fully")

_VERBS = _words(
    "is was are were has had have does did do provides provided provide gives gave give lacks lacked fails failed "
    "receives received receive gets got wins won scores scored deserves deserved would could should can may might "
    "offers offered includes included contains contained answers answered explains explained appears appeared seems "
    "seemed performs performed states stated mentions mentioned makes made addresses addressed goes went uses used "
    "covers covered focuses focused presents presented also only but being"
)


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


def _cases(words: Iterable[str]) -> str:
    return _any(case for word in words for case in (word, word.capitalize(), word.upper()))


def _nouns(words: Iterable[str]) -> str:
    return rf"(?:{_any(word[:-1] + '(?:y|ie)' if word.endswith('y') else word for word in words)})"


# Word in any of its three cases -> its position, from 0.
POSITIONS: dict[str, int] = {
    word: position
    for table in (ORDINALS, NUMERALS, SIDES, LETTERS, [f"{n}{tail}" for n, tail in enumerate(_NTH, start=1)])
    for position, low in enumerate(table)
    for word in (low, low.lower(), low.capitalize(), low.upper())
}

# Numbers and letters; the group, empty at the end of the match, says in which form.
_NUMBERED = re.compile(
    r"""[0-9A-I](?:
        (?P<letter>(?<=[A-I])(?<!\w.)(?!\w))
      | (?P<nth>(?<=[1-9])(?<![0-9].)(?:st|nd|rd|th|ST|ND|RD|TH)(?!\w))
      | (?P<number>(?<=[0-9])(?<![0-9].)(?<![0-9]\..)[0-9]*(?:\.[0-9]+)?(?!\w|,[0-9]{3}(?![0-9])|\.[0-9])))""",
    re.VERBOSE,
)


def _word_patterns() -> dict[str, re.Pattern[str]]:
    forms = {"ordinal": ORDINALS, "numeral": NUMERALS, "side": SIDES, "placement": _PLACEMENTS}
    patterns = {
        word: re.compile(rf"(?:{_cases([word])})(?P<{form}>(?<!\w.{{{len(word)}}})(?!\w))")
        for form, words in forms.items()
        for word in words
    }
    patterns |= {f"({low})": re.compile(rf"{low}(?P<bracketed>(?<=\(.)(?=\)))") for low in LETTERS.lower()}
    patterns["ssistant "] = re.compile(r"(?<=ssistant )[a-i](?P<low_letter>(?!\w))")
    return patterns


_WORDS = _word_patterns()


def find_mentions(text: str) -> list[re.Match[str]]:
    """All words that may name an answer, in the order of the text; `lastgroup` is the form.

    One pattern a word, tried only where the word occurs: several times faster than one pattern for all.
    """
    low = text.lower()
    matches = list(_NUMBERED.finditer(text))
    for word, pattern in _WORDS.items():
        if word in low:
            matches += pattern.finditer(text)
    return sorted(matches, key=re.Match.start)


_NAMING = (*ASSISTANT_NOUNS, *ANSWER_NOUNS, *LIKELY_NOUNS, *UNSURE_NOUNS)
_SINGULAR = {form: noun for noun in _NAMING for form in (noun, f"{noun}s", noun.removesuffix("y") + "ies")}
_GAP = " \t*_[(#\"“'‘`-"
_NUMBER_WORDS = (" number", " no.", " nr.")
_LAST_LETTERS = re.compile(r"[A-Za-z]+$")
_REACH = 64


class NounBefore(NamedTuple):
    """The noun before a number, in lower case and singular.

    `lead` is the word before it, in lower case; `gap` the text between the noun and the number.
    """

    noun: str
    lead: str
    gap: str
    lower: bool


def noun_before(text: str, at: int) -> NounBefore | None:
    """The noun with which a number, letter or numeral at a position may be a name: "Assistant", "the answer"."""
    head = text[max(0, at - _REACH) : at]
    stem = head.rstrip(_GAP)
    if stem.lower().endswith(_NUMBER_WORDS):
        stem = stem[: stem.rindex(" ")].rstrip(_GAP)
    gap = head[len(stem) :]
    words = stem.rsplit(maxsplit=2)[-2:]
    last = _LAST_LETTERS.search(stem, max(0, len(stem) - len(words[-1]))) if words else None
    noun = _SINGULAR.get(last[0].lower()) if last else None
    if (
        last is None
        or noun is None
        or ("-" in gap and gap != "-")
        or (not gap and noun not in (*ASSISTANT_NOUNS, *ANSWER_NOUNS))
    ):
        return None
    return NounBefore(noun, words[0].lower() if len(words) > 1 else "", gap, last[0].islower())


# Between two names of one list: "Assistants 1, 2 and 3", "Assistant 1's and 2's".
JOIN = re.compile(
    r"(?:['’]s?)?[*_)\]]*"
    r"(?:[ \t]*(?P<comma>,)[ \t]*|(?:[ \t]*,)?[ \t]++(?:and|or|nor|vs\.?|versus)[ \t]+|[ \t]*[&/<>][ \t]*)[*_(\[\#]*"
)
# What makes the last number of "Assistant 1 and 2" a count.
COUNTED = re.compile(
    r"[ \t]+(?:other|more|further|additional|extra|of|out|different|examples|points|reasons|steps|tips)\b"
)
LIST_GOES_ON = re.compile(r"[*_)\]]*(?:,|,?[ \t]+(?:and|or))[ \t]+[*_(\[\#]*(?:[0-9]+\b|[A-I]\b|[a-i]\))")
# What makes the number behind a noun a value or a quantity: "1/10", "2%", "1 out of".
QUANTITY = re.compile(r"/[0-9]{2}|/[3-9]|%|°|[ \t]*[+^×][ \t]*\w|[ \t]+(?:out of|points?\b|percent)")

_ORDINAL = rf"(?:{_any(ORDINALS)}|[1-9](?:st|nd|rd|th))"
_BETWEEN = r"(?:(?:ai|given|provided|presented|displayed|shown|chat|candidate|language)\s+)*"
# "first and second assistants", "first of the two answers", "second one": the noun after an ordinal or a side.
NOUN_AFTER = re.compile(
    rf"[*_]*(?:(?:\s*[,/&]|(?:\s*,)?\s++(?:and|or|nor|vs\.?|versus))\s*(?:the\s+)?[*_]*{_ORDINAL}[*_]*)*"
    rf"\s++(?:of\s+(?:the|these)\s+(?:(?:two|three|four)\s+)?|(?P<several>(?:two|three|four)\s+))?{_BETWEEN}"
    rf"(?:(?P<answerer>{_nouns(ASSISTANT_NOUNS)})|(?P<answer>{_nouns(ANSWER_NOUNS)})|(?P<one>one)"
    rf"|(?P<unsure>{_nouns(_UNSURE_ORDINAL)}))(?:e?s)?\b",
    re.IGNORECASE,
)
# "the first answer given by Assistant 2": the noun has an owner behind it.
OWNED_AFTER = re.compile(
    rf"\s+(?:(?:given|provided)\s+)?(?:by|from|of|in)\s+(?:the\s+)?{_nouns(_NAMING)}", re.IGNORECASE
)
OWNED_BEFORE = re.compile(
    r"(?:(?<![a-z])(?:its|their|his|her|my|your|our|(?-i:a)|an|another|each|every)|(?<!ssistant)['’]s|(?<=[0-9A-I])['’]s)"
    r"\s+(?:own\s+)?[*_]*$",
    re.IGNORECASE,
)
THE = re.compile(rf"(?<![a-z])(?:the|both|between|{_ORDINAL}[*_]*(?:\s+(?:and|or)|/|,))\s*[*_\"“'‘]*$", re.IGNORECASE)
VERBAL_BEFORE = re.compile(rf"\b(?:{_any((*VERBAL, 'and'))})\s+$", re.IGNORECASE)
OBJECT_AFTER = re.compile(
    r"\s+(?:the|an?|this|that|these|those|each|every|all|any|some|them|their|what|why|how|with|questions?)\b"
)
ASSISTANTS_BEFORE = re.compile(r"\bassistant(?:['’]s|s['’])\s+$", re.IGNORECASE)
PLURAL = re.compile(r"\b(?:answers|responses|replies|assistants|both|the two)\b", re.IGNORECASE)

# A word that stands where a name would: as a subject, as what is preferred, or beside another one.
SUBJECT_BEFORE = re.compile(
    r"(?:^|[.!?;:\n]\s*|(?:\b(?:while|but|whereas|because|since|although|though|that|with|both|either|neither|however,?"
    r"|therefore,?|overall,?|hence,?|so)|[^\d\s)(]\s+(?:and|or|nor))\s+)(?:[-*][ \t]+)?[*_\#(\[]*$",
    re.IGNORECASE,
)
PREFERRED_BEFORE = re.compile(
    r"\b(?:prefer(?:s|red)?|pick(?:ed)?|choose|chose|(?:better|worse|stronger|weaker)\s+than|over|beats?|outperforms?|(?:superior|inferior)\s+to"
    r"|compared\s+(?:to|with)|as\s+well\s+as"
    r"|(?:winner|verdict|preference|(?:better|best)(?:\s+(?:one|answer|response|assistant))?)(?:\s+is)?\s*[:=]?)\s*[*_(\[]*$",
    re.IGNORECASE,
)
# Of two that are compared in one sentence, what may stand before the second: "Assistant 1's is clearer than 2's".
COMPARED_BEFORE = re.compile(
    r"(?:\b(?:than|not|against|rather\s+than|instead\s+of|unlike|then|versus|vs\.?)|[,;+])\s*[*_(\[]*$", re.IGNORECASE
)
SUBJECT_AFTER = re.compile(rf"[*_)\]]*(?:['’]s\b|\s+(?:{_any(_VERBS)}|[a-z]+ly)\b)", re.IGNORECASE)
END_AFTER = re.compile(r"[*_)\]]*\s*(?:[.,;:!?)]|$|\n)")
NOTHING_AFTER = re.compile(
    rf"(?:{SUBJECT_AFTER.pattern})|(?:{END_AFTER.pattern})|\s+(?:in|for|with|as|to|on|by|over|than)\b", re.I
)
LABEL_BEFORE = re.compile(r"(?:^|\n)[ \t]*(?:[-*][ \t]+)?[*_(\[]*$")
LABEL_AFTER = re.compile(r"[*_)\]]*:")
OPENS_BEFORE = re.compile(r"(?:^|[.!?:\n])[ \t]*[*_]*$")
PAIRED_BEFORE = re.compile(r"\b(?:both|either|neither)\s+[*_\#(\[]*$", re.IGNORECASE)
PAIRED_AFTER = re.compile(r"[*_)\]]*\s+(?:and|or|nor)\b", re.IGNORECASE)
SHORT_BEFORE = re.compile(r"\b[A-IR]$")  # "A1", "R2"
VERDICT_BEFORE = re.compile(r"\[\[(?:[A-I][<>=]+)?$")
SHOWN_BEFORE = re.compile(r"\b(?:presented|shown|listed|displayed)\s+$", re.IGNORECASE)
_JUDGED = rf"{_nouns((*ASSISTANT_NOUNS, *ANSWER_NOUNS))}(?!\w)"
PLACED_NOUN = re.compile(rf"(?:-hand|-most)?\s+{_JUDGED}", re.IGNORECASE)
NOUN_PLACED = re.compile(rf"\b{_nouns((*ASSISTANT_NOUNS, *ANSWER_NOUNS))}\s+(?P<side>on\s+the\s+)?$", re.IGNORECASE)

# Two scores with nothing between them but what joins them.
SCORES_JOIN = re.compile(r"(?:/10)?[*_]*(?:\s*,\s*|[ \t]+(?:and|vs\.?|versus|to)[ \t]+|[ \t]*[&:-][ \t]*|[ \t]+)[*_]*")
SCORES_SCALE = re.compile(r"\b(?:scale(?:\s+(?:of|from))?|from|between|range(?:\s+of)?)\s*\(?$", re.IGNORECASE)
SCORES_BEFORE = re.compile(
    r"\b(?:scor(?:e|es|ed|ing)|rat(?:e|ed|ing|ings)|grades?|deserves?|gives?|gave|receives?|received|award(?:s|ed)?)\b",
    re.IGNORECASE,
)
SCORES_AFTER = re.compile(r"\b(?:scor(?:e|es|ed|ing)|ratings?|grades?|respectively)\b", re.IGNORECASE)
SENTENCE_END = re.compile(r"[.!?][\"”')\]*]*\s+|\n\s*")

# A quotation that is a name and no more: what may stand in it before and behind the number.
NICKNAME_BEFORE = re.compile(rf"\W*(?:the\s+)?(?:ai\s+)?{_nouns(_NAMING)}\s+", re.IGNORECASE)
NICKNAME_AFTER = re.compile(r"(?:['’]s)?\W*")


def rename_mention(word: str, form: str, position: int) -> str:
    """The word of the same form and case that names another place.

    Args:
        word: as in the text: `2`, `B`, `Second`, `2ND`, `TWO`, `former`.
        form: the form of the match of `find_mentions` that found it.
        position: from 0, below the number of answers.
    """
    if form == "number":
        return str(position + 1)
    if form == "letter":
        return LETTERS[position]
    if form == "bracketed":
        return LETTERS[position].lower()
    if form == "nth":
        replacement = f"{position + 1}{_NTH[position]}"
        return replacement.upper() if word[-1].isupper() else replacement
    replacement = {"ordinal": ORDINALS, "numeral": NUMERALS, "side": SIDES}[form][position]
    if word.isupper():
        return replacement.upper()
    return replacement.capitalize() if word[0].isupper() else replacement
