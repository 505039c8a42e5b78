"""Replies that end in `<ans> ... </ans>`: the answer taken out of them, and the label that it is.

Three rules are the original code's, which published figures rest on; the fourth is ours.

- `first`: what stands in the first pair of tags, over lines; without one the whole reply.
- `last_on_line`: what stands in the last pair of tags that opens and closes on one line; without one nothing. There
  for Mistral judges, whose decoded text began with the prompt and the tags in it.
- `second`: what stands in the second pair, in any case of letters; with fewer nothing. There for Mistral's answers.
- `last`: what stands in the last pair, in any case of letters and over lines; without one nothing.

Source: QA-Judge, Tables 8 and 9; the rules as its authors' code has them.
"""

import re
from typing import Literal

from judgelm.parsing.verdicts import Statement, Verdict, settled, unmarked_verdicts
from judgelm.records import Unparsed

TagRule = Literal["first", "last_on_line", "second", "last"]

QaLabel = Literal["correct", "incorrect"]

LabelRule = Literal["strict", "original", "original_mistral"]
"""`strict`: either word in any formatting, all else a failure. `original`: correct where the first tags (or the reply
without any) hold exactly CORRECT, all else incorrect; `original_mistral`: the same with the last tags on one line.
Replies that the original rules take for incorrect although they are neither word are failures in `Judgment.shown`."""

_FIRST = re.compile(r"<ans>(.*?)</ans>", re.DOTALL)
_ON_LINE = re.compile(r"<ans>(.*?)</ans>")
_ANY_CASE = re.compile(r"<ans>(.*?)</ans>", re.DOTALL | re.IGNORECASE)
_INNERMOST = re.compile(r"<ans>((?:(?!<ans>).)*?)</ans>", re.DOTALL | re.IGNORECASE)
_CLOSING = re.compile("</ans>")
_CLOSING_ANY_CASE = re.compile("</ans>", re.IGNORECASE)
_DRESS = re.compile(r"</?(?:b|i|em|strong)>|[\s\"'`“”‘’*_.,;:!()\[\]]", re.IGNORECASE)
_WORD = re.compile("(?:in)?correct", re.IGNORECASE)
_LABELS: dict[str, QaLabel] = {"correct": "correct", "incorrect": "incorrect"}


def tagged_answer(text: str, rule: TagRule = "first") -> str:
    """The answer in a reply, stripped of blanks; empty where the rule finds none.

    Without tags rule `first` gives the whole reply as it came, blanks and all.
    """
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
    """The text up to its last closing tag: behind it each opening tag would cost a search to the text's end."""
    ends = [match.end() for match in closing.finditer(text)]
    return text[: ends[-1]] if ends else ""


def label_by(rule: LabelRule, text: str) -> str | Unparsed:
    """The label of a reply by one of the rules."""
    if rule != "strict":
        return read_label_original(text, "first" if rule == "original" else "last_on_line")
    verdict = read_label(text)
    return verdict if isinstance(verdict, Unparsed) else verdict.label


def read_label(text: str) -> Verdict | Unparsed:
    """CORRECT or INCORRECT in any formatting; a reply that could be neither or both is a failure with its reason.

    What stands in tags counts where it is one of the two words, in any case of letters, quoted, bold or with a full
    stop; `YOUR LABEL` and other words in tags are passed over. Without any tag the whole reply must be the word, or
    state it as final. Of several that differ only one that is stated as final counts (`judgelm.parsing.verdicts`).
    """
    inside = list(_INNERMOST.finditer(_closed(text, _CLOSING_ANY_CASE)))
    read = [(_labelled(tag[1], tag.start(1)), tag.start()) for tag in inside] or [(_labelled(text, 0), 0)]
    why = "no tag holds CORRECT or INCORRECT" if inside else "no <ans> tags, and the reply is not one of the two words"
    unmarked = unmarked_verdicts(text, _LABELS)
    if not inside:  # a bare word behind reasons is no answer, but a final verdict is
        unmarked = [statement for statement in unmarked if statement.final]
    marked = [Statement(verdict, start) for verdict, start in read if verdict is not None]
    if not marked and not any(statement.final for statement in unmarked):
        return Unparsed("off_grammar", text, why)
    return settled(text, [*marked, *unmarked], why)


def _labelled(text: str, start: int) -> Verdict | None:
    label = _LABELS.get(_DRESS.sub("", text).lower())
    word = _WORD.search(text)
    return None if label is None or word is None else Verdict(label, start + word.start(), word[0])


def read_label_original(text: str, rule: Literal["first", "last_on_line"]) -> QaLabel | Unparsed:
    """Either word in capitals and nothing else, found by `rule`; the original takes all else for INCORRECT.

    Returns:
        The label, or why the reply is neither word. To reproduce the original's figures, count that as incorrect and
        say how often it occurred.
    """
    answer = tagged_answer(text, rule).strip()
    if answer in ("CORRECT", "INCORRECT"):
        return _LABELS[answer.lower()]
    return Unparsed("off_grammar", text, f"what rule {rule} finds is neither CORRECT nor INCORRECT")
