"""Load judgments from a run file for evaluation, using little memory.

Only the parts that metrics need are kept in memory, and equal parts are stored once. Complete judgments, about 2 KB
each, are read from the file when needed.
"""

from array import array
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

from judgelm.jsonl import parse_json, read_jsonl
from judgelm.records import Judgment, Shown, Unparsed
from judgelm.runs.run_files import check_texts_of_id, judgment_of_line
from judgelm.serialization import judgment_from_row

_NO_VOTES: Mapping[str, str | None] = {}
Part = TypeVar("Part", bound=Hashable)


class StoredJudgments(Mapping[str, Judgment]):
    """The latest judgment of each ID, read from the run file on each lookup.

    Attributes:
        compact: all judgments without texts, keyed by ID.
    """

    def __init__(self, path: Path) -> None:
        self.compact: dict[str, Judgment] = {}
        self._file = path.open("rb")
        starts = array("q", accumulate(map(len, self._file), initial=0))
        self._places: dict[str, int] = {}
        compaction = Compaction()
        for number, row in read_jsonl(path):
            judgment = judgment_of_line(path, number, row)
            if judgment.sample_id in self._places:
                check_texts_of_id(path, self[judgment.sample_id], judgment)
            self._places[judgment.sample_id] = starts[number - 1]
            self.compact[judgment.sample_id] = compaction(judgment)

    def __getitem__(self, key: str) -> Judgment:
        self._file.seek(self._places[key])
        return judgment_from_row(parse_json(self._file.readline().decode()))

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class Compaction:
    """Removes texts and hashes from judgments and shares equal parts. Thinking is replaced by equally many spaces."""

    def __init__(self) -> None:
        self._parts: dict[Hashable, Hashable] = {}

    def __call__(self, judgment: Judgment) -> Judgment:
        """Return the compact form of a judgment."""
        return replace(
            judgment,
            mode=self._same(judgment.mode),
            verdict=self._same(judgment.verdict),
            shown=self._same(tuple(self._shown(shown) for shown in judgment.shown), _types(judgment.shown)),
            scores=self._same(judgment.scores, _types_of(judgment.scores)),
            failure=self._same(_without_text(judgment.failure)),
            prompt_tokens=self._same(judgment.prompt_tokens),
            completion_tokens=self._same(judgment.completion_tokens),
            provenance=self._same(judgment.provenance),
            decided_by=self._same(judgment.decided_by),
            self_answers=(),
            own_reference=None,
            votes=judgment.votes or _NO_VOTES,
            hashes=None,
        )

    def _shown(self, shown: Shown) -> Shown:
        thinking = None if shown.thinking is None else self._same(" " * len(shown.thinking))
        return replace(
            shown,
            text="",
            thinking=thinking,
            scores=self._same(shown.scores, _types_of(shown.scores)),
            failure=_without_text(shown.failure),
            repaired=_without_text(shown.repaired),
            reason=None if shown.reason is None else "",
            reason_failure=_without_text(shown.reason_failure),
            truncations=(),
        )

    def _same(self, part: Part, kind: Hashable = None) -> Part:
        """Return the first part equal to this one. `kind` distinguishes equal values of different types (1 and 1.0)."""
        return self._parts.setdefault((part, kind), part)  # type: ignore[return-value]


def _types_of(scores: tuple[float, ...] | None) -> Hashable:
    return scores and tuple(map(type, scores))


def _types(shown: tuple[Shown, ...]) -> Hashable:
    return tuple(_types_of(prompt.scores) for prompt in shown)


def _without_text(failure: Unparsed | None) -> Unparsed | None:
    return failure and replace(failure, text="", why="")
