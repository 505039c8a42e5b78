"""Records of judge prompts in prompt files (`judgelm.prompts.prompt_file`)."""

import hashlib
import json
import re
import shlex
from collections.abc import Collection
from dataclasses import field
from functools import cached_property
from typing import Literal, NamedTuple

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from judgelm.errors import ConfigError

PromptKind = Literal["pair", "choice", "grade", "label"]
KINDS: tuple[PromptKind, ...] = ("pair", "choice", "grade", "label")
FIELDS = "prompt_fields"
"""Key of a sample's metadata that holds the values of a prompt's other slots."""
MAX_GRADES, MAX_DECIMAL_RANGE = 101, 10
_STRICT = ConfigDict(extra="forbid")
_BRACES = re.compile(r"\{\{[^\W\d][\w.-]*\}\}|\{([^\W\d][\w.-]*)\}")
_MUSTACHE = re.compile(r"\{\{\s*([^\W\d][\w.-]*)\s*\}\}")
_IN_BRACES = re.compile(r"\{([^{}\n]+)\}")
Spelling = str | tuple[str, ...]
"""A verdict word, or several spellings of it; replies use the first one."""


@dataclass(config=_STRICT, frozen=True, slots=True, kw_only=True)
class PromptMessage:
    """A message in a prompt. `text` contains slots."""

    text: str
    role: str = "user"


@dataclass(config=_STRICT, frozen=True, slots=True, kw_only=True)
class PairWords:
    """Verdict words for a pair. If `tie` is not set, ties go to the answer that is more likely to be better."""

    first: Spelling
    second: Spelling
    tie: Spelling | None = None


@dataclass(config=_STRICT, frozen=True, slots=True, kw_only=True)
class LabelWords:
    """Verdict words for a label."""

    fulfilled: Spelling
    failed: Spelling


@dataclass(config=_STRICT, frozen=True, slots=True, kw_only=True)
class ReplyForm:
    """The reply that the prompt asks for. Set exactly one of `pair`, `choice`, `grade`, and `label`.

    Attributes:
        choice: one verdict word per answer, for three or more answers.
        grade: lowest and highest grade, or a grade for each verdict word.
        whole: grades are whole numbers.
        text: contains `{verdict}` and optionally `{reason}`, `{probability}`, `{score_1}`, and `{score_2}` (1 to 10).
        json: alternative to `text`; maps JSON fields to these names.
        reason: maximum number of tokens for a reason before the verdict; None reads the verdict directly.
        min_coverage: minimum total probability of the verdict words, in [0, 1].
    """

    pair: PairWords | None = None
    choice: tuple[Spelling, ...] | None = None
    grade: tuple[float, float] | dict[str, float] | None = None
    label: LabelWords | None = None
    whole: bool = True
    text: str | None = None
    json: dict[str, str] = field(default_factory=dict)
    reason: int | None = None
    min_coverage: float = 0.5

    @property
    def kind(self) -> PromptKind:
        """The kind of verdict, according to the field that is set."""
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ConfigError(f"reply: expected exactly one of {', '.join(KINDS)}, got {' and '.join(given) or 'none'}")
        return given[0]

    @property
    def form(self) -> str:
        """The reply as text with slots."""
        if not self.json:
            return "{verdict}" if self.text is None else self.text
        numeric = self.kind == "grade" and not isinstance(self.grade, dict)
        bare = ("probability", "score", "score_1", "score_2", *(("verdict",) if numeric else ()))
        values = {slot: f"{{{slot}}}" if slot in bare else json.dumps(f"{{{slot}}}") for slot in self.json.values()}
        pairs = [f"{json.dumps(name)}: {values[slot]}" for name, slot in self.json.items()]
        return f"{{{', '.join(pairs)}}}"

    @property
    def words(self) -> dict[str, tuple[str, ...]]:
        """Spellings, keyed by verdict word. For a pair: first, second, and tie."""
        match self.kind:
            case "pair" if self.pair is not None:
                spelled = [self.pair.first, self.pair.second, *((self.pair.tie,) if self.pair.tie is not None else ())]
            case "label" if self.label is not None:
                spelled = [self.label.fulfilled, self.label.failed]
            case "choice":
                spelled = list(self.choice or ())
            case _:
                return self._grades
        spellings = [tuple(map(str.strip, (word,) if isinstance(word, str) else word)) for word in spelled]
        return {words[0] if words else "": words for words in spellings}

    @property
    def _grades(self) -> dict[str, tuple[str, ...]]:
        if isinstance(self.grade, dict):
            return {word.strip(): (word.strip(),) for word in self.grade}
        return {f"{value:g}": tuple({f"{value:g}": 0, self._written(value): 0}) for value in self.scores}

    def _written(self, value: float) -> str:
        return f"{value:g}" if self.whole else f"{value:.1f}"

    @property
    def scores(self) -> tuple[float, ...]:
        """The score of each verdict word; empty for `pair` and `choice`."""
        if self.kind == "label":
            return (1.0, 0.0)
        if self.grade is None:
            return ()
        if isinstance(self.grade, dict):
            return tuple(self.grade.values())
        low, high = self.grade
        step = 1.0 if self.whole else 0.1
        count = round((high - low) / step) + 1
        if count > MAX_GRADES:
            raise ConfigError(f"reply.grade: {count} grades; the maximum is {MAX_GRADES}, so use a smaller range")
        return tuple(round(low + index * step, 6) for index in range(count))

    @property
    def scale(self) -> tuple[float, float]:
        """Lowest and highest score."""
        if isinstance(self.grade, tuple):
            return self.grade
        if self.kind in ("grade", "label"):
            return min(self.scores), max(self.scores)
        return (1.0, 10.0)


class Piece(NamedTuple):
    """A part of a message: fixed text, or a slot."""

    text: str
    is_slot: bool


@dataclass(config=_STRICT, frozen=True, kw_only=True, repr=False)
class JudgePrompt:
    """A prompt in a prompt file.

    Attributes:
        ask: how the server judges requests that match this prompt: with the judge's own template (`judge`), or with
            this prompt (`prompt`).
        syntax: how slots are written: `{name}` or, for `mustache`, `{{name}}`.
        file: name of the file.
        source: the file's text, for the manifest.
    """

    name: str
    prompt: tuple[PromptMessage, ...]
    reply: ReplyForm
    ask: Literal["judge", "prompt"] = "judge"
    syntax: Literal["braces", "mustache"] = "braces"
    file: str = ""
    source: str = ""

    def __hash__(self) -> int:
        return hash(self.sha)

    def __repr__(self) -> str:
        return f"JudgePrompt({self.name!r}, sha={self.sha!r})"

    @cached_property
    def sha(self) -> str:
        """SHA-256 (hex) of the file's text and the prompt's name."""
        return hashlib.sha256(f"{self.name}\n{self.source}".encode()).hexdigest()

    @cached_property
    def pieces(self) -> tuple[tuple[Piece, ...], ...]:
        """The parts of each message."""
        return tuple(pieces_of(message.text.strip(), self.syntax) for message in self.prompt)

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """All slots, in order of first use."""
        return tuple(dict.fromkeys(piece.text for message in self.pieces for piece in message if piece.is_slot))

    @property
    def answers(self) -> list[str]:
        """The slots for answers, in order."""
        named = [slot for slot in self.slots if is_answer(slot)]
        return sorted(named, key=lambda slot: 1 if slot == "answer" else int(slot.removeprefix("answer_")))

    @property
    def fields(self) -> tuple[str, ...]:
        """The slots for other fields of a row."""
        return tuple(slot for slot in self.slots if slot not in ("question", "reference") and not is_answer(slot))

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes that can use this prompt, starting with the usual mode."""
        label = ("label", "single", "pair", "multi", *(("grounded",) if "context" in self.slots else ()))
        alone = {"grade": ("single", "pair", "multi"), "label": label}
        return alone.get(self.reply.kind, ("pair",) if self.reply.kind == "pair" else ("multi",))

    @cached_property
    def _literals(self) -> dict[str, str]:
        """Text in braces that is not a slot, keyed by the name of the column that it may mean."""
        if self.syntax == "mustache":
            return {}
        texts = [message.text for message in self.prompt]
        doubled = {match[1]: match[0] for text in texts for match in _MUSTACHE.finditer(text)}
        odd = {match[1].strip(): match[0] for text in texts for match in _IN_BRACES.finditer(text)}
        return {name: shown for name, shown in odd.items() if name not in self.slots} | doubled

    def check_literals(self, columns: Collection[str]) -> None:
        """Check that no text in braces that is not a slot has the name of a column."""
        if self._literals.keys().isdisjoint(columns):
            return
        name, shown = next((name, shown) for name, shown in self._literals.items() if name in columns)
        if shown.startswith("{{"):
            way_out = f"write {{{name}}}, or use a YAML file with the line syntax: mustache"
        else:
            slot = re.sub(r"\W+", "_", f"column_{name}" if name[0].isdecimal() else name).strip("_")
            way_out = f"write {{{slot}}}, and pass --column {shlex.quote(f'{slot}={name}')}"
        place = line_of(self.source, shown)
        raise ConfigError(
            f"prompt {self.name}: {place}{shown} is literal text, but {name} is a field of the rows; {way_out}"
        )


def is_answer(slot: str) -> bool:
    """Return whether a slot shows an answer."""
    return slot == "answer" or slot.removeprefix("answer_").isdecimal()


def literal_text(text: str) -> str:
    """Escape text so that a prompt file shows it unchanged."""
    return re.sub(r"\{[^\W\d][\w.-]*\}", r"{\g<0>}", text)


def line_of(source: str, text: str) -> str:
    """Return `line N: ` for the first line with this text, or an empty string."""
    lines = source.split("\n")
    return next((f"line {number}: " for number, line in enumerate(lines, 1) if text.strip() and text in line), "")


def pieces_of(text: str, syntax: str) -> tuple[Piece, ...]:
    """Split a message into fixed text and slots."""
    pieces, fixed, end = [], "", 0
    for match in (_MUSTACHE if syntax == "mustache" else _BRACES).finditer(text):
        fixed += text[end : match.start()]
        end = match.end()
        if match[1] is None:
            fixed += match[0][1:-1]
        else:
            pieces += [Piece(fixed, False), Piece(match[1], True)]
            fixed = ""
    pieces.append(Piece(fixed + text[end:], False))
    return tuple(piece for piece in pieces if piece.text)


def slots_of(text: str) -> list[str]:
    """Return the slots in the text of a reply, in order."""
    return [piece.text for piece in pieces_of(text, "braces") if piece.is_slot]
