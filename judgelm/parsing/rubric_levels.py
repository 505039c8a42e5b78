"""The level of a rubric that a reply ends in.

Source: Play Favorites, appendix D: replies of the form `Explanation: ..., Answer: ...`.
"""

import re
from collections.abc import Sequence

from judgelm.parsing.verdicts import Statement, Verdict, settled, unmarked_verdicts
from judgelm.records import Unparsed

_DRESS = re.compile("[*_`\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_LINE_BREAK = re.compile(r"[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_ANSWER = re.compile(r"(?<!\w)(?P<final>final\s+)?answer\s*[:：]\s*", re.IGNORECASE)
_AROUND = " \t.,;:!\"“”'‘’()[]-。"
_QUOTED = 60


def parse_level(text: str, levels: Sequence[str]) -> str | Unparsed:
    """Read the level that a reply ends in.

    What stands behind the last `Answer:` on its line must be a level and nothing else: case, blanks, markdown, quotes,
    brackets and a final stop do not count. So "incorrect" and "partially correct" are never taken for "correct", and
    "correct, mostly" is no level. A reply that gives two different levels is `off_grammar`, unless one is stated as
    final (see `judgelm.parsing.verdicts`).

    Args:
        text: the judge's reply.
        levels: as the prompt names them.

    Returns:
        The level as the prompt names it, or why there is none.
    """
    cleaned = _DRESS.sub("", text)
    if not cleaned.strip():
        return Unparsed("off_grammar", text, "the reply is empty")
    answers = _answers(cleaned)
    if not answers:
        return Unparsed("off_grammar", text, "the reply has no `Answer:`")
    known = {_bare(level): level for level in levels}
    unmarked = unmarked_verdicts(cleaned, known)
    last = answers[-1]
    if _bare(last[0]) not in known and not any(final.final and final.start > last[1].start() for final in unmarked):
        why = f"what follows `Answer:` is none of the levels: {last[0][:_QUOTED]!r}"
        return Unparsed("off_grammar", text, why)
    stated = [
        Statement(Verdict(known[_bare(answer)], mark.end(), answer), mark.start(), final=mark["final"] is not None)
        for answer, mark in answers
        if _bare(answer) in known
    ]
    result = settled(cleaned, [*stated, *unmarked], "the reply has no `Answer:`")
    return Unparsed("off_grammar", text, result.why) if isinstance(result, Unparsed) else result.label


def _answers(text: str) -> list[tuple[str, re.Match[str]]]:
    """The text behind the last `Answer:` of each line that has one, and that mark."""
    marks, text = list(_ANSWER.finditer(text)), f"{text}\n"
    ends = [*(mark.start() for mark in marks), len(text)][1:]
    breaks = [_LINE_BREAK.search(text, mark.end(), end) for mark, end in zip(marks, ends, strict=True)]
    return [(text[mark.end() : at.start()], mark) for mark, at in zip(marks, breaks, strict=True) if at is not None]


def _bare(level: str) -> str:
    """A level without what does not tell it from others."""
    return " ".join(_DRESS.sub("", level).split()).strip(_AROUND).casefold()
