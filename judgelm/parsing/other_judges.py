"""Replies of other open judges -> a label, a grade, or why there is neither.

All that the judges' own parsers read is read alike. What they do not read is `Unparsed` here, never a tie (PandaLM's
own code) nor a 0 (Auto-J's). Each function states where it is stricter or wider.
"""

import re
from typing import Literal

from judgelm.parsing.verdicts import Statement, Verdict, settled
from judgelm.records import Scores, Unparsed

PairLabel = Literal["1", "2", "tie"]
"""The better answer's place in the order shown."""

_PANDALM: dict[str, PairLabel] = {"1": "1", "2": "2", "tie": "tie"}
_DECISION = re.compile(r"final decision is\s*(response [12](?!\d)|tie\b)", re.IGNORECASE)
_OPENING = "final decision is "
_SEVERAL = re.compile(r"\s*+(?:/|(?:,\s*+)?(?:or|and)\b)\s*(?:response|tie)\b", re.IGNORECASE)
_RATING = "Rating: [["
_NUMBER = re.compile(r"\d+(?:\.\d+)?")

_MARK = r"\[(?:RESULT|SCORE)\s*\]?[:：]?"
_BEHIND = r"[\s.。*]*"
_OTHER_RESULT = r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|half|or|rather|maybe|perhaps|out of)\b"
_END = rf"{_BEHIND}(?:[(（](?![^()（）\n]*(?:{_OTHER_RESULT}))[^()（）\n]*+[)）]{_BEHIND})?$"
"""The end of a line, or before it an explanation in parentheses that names no other result."""
_MARKED_SCORE = re.compile(
    rf"{_MARK}[\s(\[*]*(\d+)[\s)\]]*(?:/\s*5|out\s+of\s+5)?(?![\w/-]|\.\d){_END}", re.IGNORECASE | re.MULTILINE
)
_LAST_SCORE = re.compile(
    r"(?:\b(?:score|result)[:：]?|\bscore\s+of)[\s(\[*]*(\d+)[\s)\]]*(?:/\s*5|out\s+of\s+5)?[\s.。*]*\Z", re.IGNORECASE
)
_MARKED_LETTER = re.compile(
    rf"(?:{_MARK}[\s*]*(?:response\s+)?|\[response\s+|^result[:：]?\s*(?:response\s+)?)([AB])\]?(?!\w){_END}",
    re.IGNORECASE | re.MULTILINE,
)


def read_pandalm(text: str) -> PairLabel | Unparsed:
    """The first line that is not blank: `1`, `2` or `Tie` and nothing else; the reason and reference below it."""
    first = text.strip().split("\n")[0].strip()
    if (label := _PANDALM.get(first.lower())) is not None:
        return label
    return Unparsed("off_grammar", text, "the first line is not 1, 2 or Tie")


def read_auto_j(text: str) -> PairLabel | Unparsed:
    """The answer that the last `final decision is` names: Response 1, Response 2 or Tie.

    Stricter than the original: a decision that names several (`Response 1 / Response 2 / Tie`, the prompt's own words)
    is no decision.
    """
    start = text.rfind(_OPENING)
    decision = None if start < 0 else _DECISION.match(text, start)
    if decision is None:
        return Unparsed("off_grammar", text, "no final decision for Response 1, Response 2 or Tie")
    if _SEVERAL.match(text, decision.end()):
        return Unparsed("off_grammar", text, "the final decision names more than one of Response 1, Response 2 and Tie")
    named = decision[1].lower()
    return "tie" if named == "tie" else "1" if named.endswith("1") else "2"


def read_auto_j_rating(text: str) -> Scores | Unparsed:
    """The number in the last `Rating: [[...]]`, from 1 to 10."""
    start = text.rfind(_RATING)
    end = text.find("]]", start) if start >= 0 else -1
    inside = text[start + len(_RATING) : end].strip() if end >= 0 else ""
    if not _NUMBER.fullmatch(inside):
        return Unparsed("off_grammar", text, "no number in `Rating: [[...]]`")
    return _in_range(float(inside), 10, text)


def read_prometheus_score(text: str) -> Scores | Unparsed:
    """The whole number from 1 to 5 behind `[RESULT]`, at the end of a line; all such lines must agree.

    Without one, what the reply ends in: `Score: 3`, `score of 2 out of 5`. Wider than the original, which refuses
    `[RESULT] 4.`, bold numbers, an explanation in parentheses and text in the lines below.
    """
    result = _agreed(text, _MARKED_SCORE, "no [RESULT] with a whole number at the end of its line", _LAST_SCORE)
    return result if isinstance(result, Unparsed) else _in_range(float(result), 5, text)


def read_prometheus_letter(text: str) -> PairLabel | Unparsed:
    """A or B behind `[RESULT]`, at the end of a line; all such lines must agree, and there are no ties.

    Wider than the original, which refuses `[RESULT] A.`, bold letters and an explanation in parentheses; stricter where
    two results differ.
    """
    letter = _agreed(text, _MARKED_LETTER, "no [RESULT] with A or B at the end of its line")
    if isinstance(letter, Unparsed):
        return letter
    return "1" if letter == "A" else "2"


def _agreed(text: str, mark: re.Pattern[str], missing: str, otherwise: re.Pattern[str] | None = None) -> str | Unparsed:
    """The one result of all marked ones, in capitals; without a mark that of the other pattern."""
    matches = list(mark.finditer(text)) or ([] if otherwise is None else list(otherwise.finditer(text)))
    found = [Statement(Verdict(match[1].upper(), match.start(1), match[1]), match.start()) for match in matches]
    result = settled(text, found, missing)
    return result if isinstance(result, Unparsed) else result.label


def _in_range(value: float, highest: int, text: str) -> Scores | Unparsed:
    if not 1 <= value <= highest:
        return Unparsed("out_of_range", text, f"{value:g} is outside 1 to {highest}")
    return Scores((value,))
