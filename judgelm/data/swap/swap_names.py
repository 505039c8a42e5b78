"""Swapped names in the text of a judgment, for answers shown in another order.

Names are replaced in place, word by word: "Assistant 1 and 2 receive 8 and 6, respectively" becomes
"Assistant 2 and 1 receive 8 and 6, respectively", which is still true, and a second swap restores the text.
Quotations of an answer stay as they are. Where it is unclear whether a word names an answer, the whole text is
`Ambiguous`, in every order of the answers.

"The former" and "the latter" stay after two names, since those were swapped in place; without names before it, "the
latter answer" is the one shown last, and becomes "the former answer".

Limits: English only; the score line is not read or rebuilt; quotations need quotation marks.

Source: JudgeLM, section 5.1 and Figure 15 (swap augmentation); there only two literals are replaced.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from judgelm.data.swap.mentions import AmbiguityCode, Mention, MentionReader, Reading
from judgelm.data.swap.patterns import (
    NICKNAME_AFTER,
    NICKNAME_BEFORE,
    SCORES_AFTER,
    SCORES_BEFORE,
    SCORES_JOIN,
    SCORES_SCALE,
    find_mentions,
    rename_mention,
)
from judgelm.data.swap.spans import Quote, SourceTexts, WordPositions, enclosing_quote, find_quotes

OnAmbiguous = Literal["keep", "drop_reason"]
"""Treatment of a pair with an ambiguous reason: keep it unswapped, or swap it without that reason."""

_TOP_SCORE = 10
_AROUND = 30
_SCORE_DRESS = " \t*_()[].#>"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwappedText:
    """The text for the new order, and the number of names in it."""

    text: str
    mentions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous:
    """A text whose names cannot be resolved; `excerpt` has the unclear words with their context."""

    code: AmbiguityCode
    excerpt: str


def swap_names(text: str, order: tuple[int, ...], answers: Sequence[str] = ()) -> SwappedText | Ambiguous:
    """Swap the names in the text of a judgment for answers in another order.

    Args:
        text: the reason, without its score line.
        order: `order[i]` is the old position, from 0, of the answer that is now at position i; `(1, 0)` swaps a pair.
        answers: texts that may be quoted: the answers, the question and the reference. Without any, a quotation
            with a name in it is ambiguous.

    Raises:
        ValueError: `order` is no permutation of two to nine positions.

    Example:
        >>> swap_names("Assistant 1 is right, Assistant 2 is not.", (1, 0)).text
        'Assistant 2 is right, Assistant 1 is not.'
        >>> swap_names("The better one is 2.", (1, 0))
        Ambiguous(code='bare_name', excerpt='The better one is 2.')
    """
    if sorted(order) != list(range(len(order))) or len(order) not in range(2, 10):
        raise ValueError(f"order {order}: expected each place from 0 to {len(order) - 1} once, of two to nine answers")
    names = _names(text, len(order), answers)
    if isinstance(names, Ambiguous):
        return names
    parts, at = [], 0
    for name in names:
        parts += [text[at : name.start], rename_mention(name.word, name.form, order.index(name.position))]
        at = name.end
    return SwappedText(text="".join([*parts, text[at:]]), mentions=len(names))


def _names(text: str, count: int, answers: Sequence[str]) -> list[Mention] | Ambiguous:
    """The names in a text, or the first finding that makes it ambiguous."""
    reader = MentionReader(text=text, count=count, sources=SourceTexts(answers))
    quotes: list[Quote] | None = None
    scores = _ScorePairs()
    for match in find_mentions(text):
        reading = reader.read(match)
        if reading == "plain":
            scores.add(match)
            continue
        quotes = find_quotes(text) if quotes is None else quotes
        quote = enclosing_quote(quotes, *match.span())
        if quote is not None and reading != "quoted_name":
            reading = _in_quote(match, quote, reader)
        if reading == "name":
            reader.add(match)
        elif reading != "plain":
            return Ambiguous(code=reading, excerpt=_around(text, *match.span()))
    words = WordPositions(SCORES_BEFORE, text), WordPositions(SCORES_AFTER, text)
    unnamed = next((pair for pair in scores.pairs if _is_unnamed(pair, reader, words)), None)
    return reader.names if unnamed is None else Ambiguous(code="unnamed_scores", excerpt=_around(text, *unnamed))


def _in_quote(match: re.Match[str], quote: Quote, reader: MentionReader) -> Reading:
    """The reading of a word within a quotation that would name an answer outside of it.

    An answer's own words are left alone. Another quotation names an answer only where it is the name and no more
    (`"Assistant 1"`), and where no answer has that name for any of the places.
    """
    before, after = reader.text[quote.start : match.start()], reader.text[match.end() : quote.end]
    if not (NICKNAME_BEFORE.fullmatch(before) and NICKNAME_AFTER.fullmatch(after)):
        return "plain" if reader.sources.contain(quote.content) else "quoted_name"
    form = match.lastgroup or ""
    names_elsewhere = (f"{before}{rename_mention(match[0], form, position)}{after}" for position in range(reader.count))
    return "name" if reader.sources.texts and not any(map(reader.sources.contain, names_elsewhere)) else "quoted_name"


class _ScorePairs:
    """Pairs of different numbers that may be scores, with only "and" or similar between them."""

    def __init__(self) -> None:
        self.pairs: list[tuple[int, int]] = []
        self._last: re.Match[str] | None = None

    def add(self, match: re.Match[str]) -> None:
        """Add the next word that names no answer."""
        if match.lastgroup != "number" or float(match[0]) > _TOP_SCORE:
            return
        text, last = match.string, self._last
        if last is not None and match[0] == "10" and text[last.end() : match.start()] == "/":
            return  # the denominator of the number before
        self._last = match
        if last is None or float(last[0]) == float(match[0]):
            return
        if SCORES_JOIN.fullmatch(text, last.end(), match.start()):
            self.pairs.append((last.start(), match.end()))


def _is_unnamed(pair: tuple[int, int], reader: MentionReader, words: tuple[WordPositions, WordPositions]) -> bool:
    """True if the two numbers are scores, and their sentence (with a preceding colon clause) names less than two.

    `words` are those that speak of scores before and behind them.
    """
    (start, end), text, (before, behind) = pair, reader.text, words
    if SCORES_SCALE.search(text, max(0, start - _AROUND), start):
        return False
    start_of_sentence, end_of_sentence = reader.sentences.start_with_lead_in(start), reader.sentences.end(end)
    line_start, line_end = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    rest = text[line_start:start] + text[end : line_end if line_end >= 0 else len(text)]
    alone = not rest.removesuffix("/10").strip(_SCORE_DRESS)
    if len({position for position, _ in reader.mentioned(start_of_sentence, end_of_sentence)}) > 1:
        return False
    return alone or before.any_in(start_of_sentence, start) or behind.any_in(end, end_of_sentence)


def _around(text: str, start: int, end: int) -> str:
    return text[max(0, start - _AROUND) : end + _AROUND]
