"""Where the sentences of a judgment begin and end, and which words they hold: found once for the whole text."""

import re
from bisect import bisect_left, bisect_right
from itertools import pairwise

from judgelm.data.swap.words import SENTENCE_END


class Sentences:
    """The sentences of one text. Positions asked for are those of words, never of the blanks or marks between two.

    Args:
        text: of the whole judgment.
    """

    def __init__(self, text: str) -> None:
        ends = list(SENTENCE_END.finditer(text))
        self._length = len(text)
        self._closes = [match.start() for match in ends]
        self._opens = [0, *(match.end() for match in ends)]
        self._led = [0]
        for before, opening in pairwise(self._opens):
            self._led.append(self._led[-1] if text[before:opening].rstrip().endswith(":") else opening)

    def opens(self, position: int, *, back: int = 0) -> int:
        """Where the sentence of a position begins, or the one so many before it; 0 where there are fewer."""
        return self._opens[max(0, bisect_right(self._opens, position) - 1 - back)]

    def closes(self, position: int) -> int:
        """Where the sentence of a position ends."""
        index = bisect_left(self._closes, position)
        return self._closes[index] if index < len(self._closes) else self._length

    def led_up_to(self, position: int) -> int:
        """Where the sentence of a position begins, with those before it that end in a colon."""
        return self._led[bisect_right(self._opens, position) - 1]


class Words:
    """Where a pattern's words stand in one text.

    Args:
        pattern: of single words.
        text: of the whole judgment.
    """

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self._starts = [match.start() for match in pattern.finditer(text)]

    def between(self, start: int, end: int) -> bool:
        """Whether one of them begins in `[start, end)`."""
        index = bisect_left(self._starts, start)
        return index < len(self._starts) and self._starts[index] < end
