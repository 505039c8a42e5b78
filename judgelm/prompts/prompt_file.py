r"""Prompt files: what the judge is asked, and how its verdict is read.

A YAML file contains one prompt or a list of prompts:

    prompt: |-
      Context: {context}
      Question: {question}
      Answer: {answer}
      Is the answer supported by the context? Reply with Yes or No.
    reply: Yes/No

A text file contains the prompt alone, and ends with the line `reply: Yes/No`.

Slots are `question`, `reference`, `criterion`, `answer` or `answer_1`, `answer_2`, and so on, and the names of other
fields of a row. `{{word}}` is a literal `{word}`; with `syntax: mustache`, it is a slot.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from judgelm.bounds import read_text
from judgelm.errors import ConfigError, InputError
from judgelm.prompts.catalog import JudgeReading, Layout, Messages, Template, VerdictForm, fill
from judgelm.records import Prompt, Role, Sample, Span
from judgelm.yaml_files import MAX_YAML_BYTES, parse_yaml

PromptKind = Literal["pair", "choice", "grade", "label"]
KINDS: tuple[PromptKind, ...] = ("pair", "choice", "grade", "label")
FIELDS = "prompt_fields"
"""Key of a sample's metadata that holds the values of a prompt's other slots."""
REPLY_SLOTS = ("verdict", "reason", "probability", "score", "score_1", "score_2")
DOCS = "see docs/prompts.md"
MAX_GRADES = 101
_STRICT = ConfigDict(extra="forbid")
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_BRACES = re.compile(r"(?<!\{)\{([^\W\d][\w.-]*)\}(?!\})")
_MUSTACHE = re.compile(r"\{\{\s*([^\W\d][\w.-]*)\s*\}\}")
_LITERAL = re.compile(r"\{(\{[^\W\d][\w.-]*\})\}")
_SECTION = re.compile(r"\{\{(?!\s*[^\W\d][\w.-]*\s*\}\})(?:[^{}\n]+\}\}|\{)|\{%.*?%\}")
_RANGE = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:-|to|\.\.)\s*(-?\d+(?:\.\d+)?)")
_MARK = "\ue000"
"""Precedes the names of slots in a layout, so that literal braces are never mistaken for slots."""

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
        step = 1.0 if self.whole or high - low > 10 else 0.1
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
    def template(self) -> Template:
        """The template that shows this prompt."""
        return _template(self)

    @cached_property
    def pieces(self) -> tuple[tuple[Piece, ...], ...]:
        """The parts of each message."""
        return tuple(_pieces(message.text.strip(), self.syntax) for message in self.prompt)

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
        alone = {"grade": ("single", "pair", "multi"), "label": ("label", "single", "pair", "multi")}
        return alone.get(self.reply.kind, ("pair",) if self.reply.kind == "pair" else ("multi",))

    def check_literals(self, columns: Sequence[str]) -> None:
        """Check that no literal `{{name}}` has the name of a column; `syntax: mustache` is probably missing."""
        if self.syntax == "mustache":
            return
        for match in (match for message in self.prompt for match in _MUSTACHE.finditer(message.text)):
            if (name := match[1]) in columns:
                raise ConfigError(
                    f"prompt {self.name}: {line_of(self.source, match[0])}{match[0]} is literal text, but {name} is a "
                    f"field of the rows; write {{{name}}}, or use a YAML file with the line syntax: mustache"
                )


def is_answer(slot: str) -> bool:
    """Return whether a slot shows an answer."""
    return slot == "answer" or slot.removeprefix("answer_").isdecimal()


def line_of(source: str, text: str) -> str:
    """Return `line N: ` for the first line with this text, or an empty string."""
    lines = source.split("\n")
    return next((f"line {number}: " for number, line in enumerate(lines, 1) if text.strip() and text in line), "")


def _pieces(text: str, syntax: str) -> tuple[Piece, ...]:
    parts = (_MUSTACHE if syntax == "mustache" else _BRACES).split(text)
    pieces = [
        Piece(part if index % 2 or syntax == "mustache" else _LITERAL.sub(r"\1", part), bool(index % 2))
        for index, part in enumerate(parts)
    ]
    return tuple(piece for piece in pieces if piece.text)


_FILE = TypeAdapter(tuple[JudgePrompt, ...])


def read_prompts(path: str | Path, known: Sequence[str] = ()) -> tuple[JudgePrompt, ...]:
    """Load the prompts in a file. `known` lists names that are already in use.

    Raises:
        ConfigError: the file cannot be read, or a prompt is invalid; the message names the line where possible.
    """
    prompts = parse_prompts(_read(path), path)
    names = list(known)
    for prompt in prompts:
        try:
            if not _NAME.fullmatch(prompt.name) or prompt.name in names:
                raise ConfigError("the name is already in use, or contains characters other than a-z, 0-9, and hyphens")
            _check(prompt)
        except ConfigError as error:
            raise ConfigError(f"{path}: {prompt.name}: {error}") from None
        names.append(prompt.name)
    return prompts


def read_prompt(path: str | Path) -> JudgePrompt:
    """Load a file with exactly one prompt."""
    prompts = read_prompts(path)
    if len(prompts) > 1:
        names = ", ".join(prompt.name for prompt in prompts)
        raise ConfigError(f"{path}: expected one prompt, got {len(prompts)} ({names}); write each to its own file")
    return prompts[0]


def parse_prompts(source: str, path: str | Path) -> tuple[JudgePrompt, ...]:
    """Parse the text of a prompt file. `path` names the file in errors, and its suffix tells YAML from plain text."""
    try:
        prompts = _FILE.validate_python(_entries(path, source))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        lines = [line_of(source, f"{key}:") for key in reversed(first["loc"]) if isinstance(key, str)]
        line = next(filter(None, lines), "")
        raise ConfigError(f"{path}: {line}prompt {where}: {first['msg']}; {DOCS}") from None
    return tuple(replace(prompt, file=Path(path).name, source=source) for prompt in prompts)


def _read(path: str | Path) -> str:
    try:
        return read_text(path, MAX_YAML_BYTES).removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}: line {line} is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot read: {error.strerror or error}; check the path") from None


def _entries(path: str | Path, source: str) -> list[dict[str, Any]]:
    if Path(path).suffix.lower() in (".yaml", ".yml", ".json", ""):
        try:
            content = parse_yaml(source, as_strings=True)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}; correct it, or save the prompt as a .txt file") from None
    else:
        content = _text_prompt(path, source)
    entries = content if isinstance(content, list) else [content]
    if not entries or not all(isinstance(entry, dict) and "prompt" in entry for entry in entries):
        raise ConfigError(f"{path}: no prompts found; {DOCS}")
    return [_completed(path, entry) for entry in entries]


def _text_prompt(path: str | Path, source: str) -> dict[str, Any]:
    text, _, last = source.rstrip().rpartition("\n")
    key, _, reply = last.partition(":")
    if key.strip().lower() != "reply" or not reply.strip() or not text.strip():
        number = source.rstrip().count("\n") + 1
        raise ConfigError(f"{path}: line {number}: the last line must state the reply, such as reply: Yes/No")
    return {"prompt": text, "reply": reply.strip()}


def name_of(path: str | Path) -> str:
    """Return the default name of a prompt: the file's name in lower case, with hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", Path(path).stem.lower()).strip("-") or "prompt"


def _completed(path: str | Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the name, and expand the short forms of `prompt` and `reply`."""
    completed = {"name": name_of(path)} | dict(entry)
    if isinstance(completed["prompt"], str):
        completed["prompt"] = [{"text": completed["prompt"]}]
    if not isinstance(completed.get("reply"), dict):
        messages = completed["prompt"] if isinstance(completed["prompt"], list) else []
        texts = [str(message.get("text", "")) for message in messages if isinstance(message, dict)]
        slots = [piece.text for text in texts for piece in _pieces(text, completed.get("syntax", "")) if piece.is_slot]
        answers = len({slot for slot in slots if is_answer(slot)})
        completed["reply"] = _short_reply(completed.get("reply"), answers, f"{path}: ")
    return completed


def _short_reply(reply: object, answers: int, place: str) -> dict[str, Any]:
    if isinstance(reply, str):
        if (match := _RANGE.fullmatch(reply.strip())) is not None:
            return {"grade": (float(match[1]), float(match[2]))}
        words = [word.strip() for word in reply.split("/")]
        if answers == 2 and len(words) in (2, 3):
            return {"pair": dict(zip(("first", "second", "tie"), words, strict=False))}
        if answers < 2 and len(words) == 2:
            return {"label": {"fulfilled": words[0], "failed": words[1]}}
        if answers > 2 and len(words) == answers:
            return {"choice": words}
    raise ConfigError(
        f"{place}reply: got {reply!r} for {answers} answers; write a range (1-5), two words for one answer (Yes/No), "
        "or one word per answer (A/B, or A/B/tie)"
    )


def _check(prompt: JudgePrompt) -> None:
    for message in prompt.prompt:
        if prompt.syntax == "mustache" and (section := _SECTION.search(message.text)) is not None:
            line = line_of(prompt.source, section[0].split("\n")[0])
            raise ConfigError(f"{line}{section[0]!r}: only plain slots such as {{{{name}}}} are supported; remove it")
    for message in prompt.prompt:
        if message.role not in get_args(Role):
            raise ConfigError(f"role {message.role!r} is unknown; use {', '.join(get_args(Role))}")
    if not prompt.prompt or prompt.prompt[-1].role == "assistant" or not prompt.pieces[-1]:
        raise ConfigError("the last message must be a question to the judge, with role user")
    prompt.check_literals(["question", "reference", "criterion", "answer", "answer_1", "answer_2"])
    _check_answers(prompt)
    _check_reply(prompt)
    _verdict(prompt)


def _check_answers(prompt: JudgePrompt) -> None:
    kind, answers = prompt.reply.kind, prompt.answers
    wanted = {"pair": 2, "choice": len(prompt.reply.choice or ())}.get(kind, 1)
    usual = ["answer"] if wanted == 1 else [f"answer_{index + 1}" for index in range(wanted)]
    if kind == "choice" and wanted < 3:
        raise ConfigError(f"reply.choice: expected at least 3 verdict words, got {wanted}; for two answers, use pair")
    if answers not in (usual, [f"answer_{index + 1}" for index in range(wanted)]):
        shown = ", ".join(f"{{{slot}}}" for slot in answers) or "none"
        others = ", ".join(f"{{{slot}}}" for slot in prompt.slots if slot not in answers)
        hint = f" (other slots: {others})" if others else ""
        expected = ", ".join(f"{{{slot}}}" for slot in usual)
        raise ConfigError(f"a {kind} reply requires a prompt with {expected}; its slots for answers: {shown}{hint}")


def _check_reply(prompt: JudgePrompt) -> None:
    reply = prompt.reply
    if reply.json and reply.text is not None:
        raise ConfigError("reply: text and json cannot be combined; remove one")
    slots = list(reply.json.values()) if reply.json else _BRACES.findall(reply.form)
    if unknown := [slot for slot in slots if slot not in REPLY_SLOTS]:
        written = next((line for line in (reply.text or "").split("\n") if unknown[0] in line), unknown[0])
        raise ConfigError(
            f"{line_of(prompt.source, written)}reply: unknown slot {unknown[0]!r}; available: {', '.join(REPLY_SLOTS)}"
        )
    if slots.count("verdict") != 1:
        raise ConfigError("reply: must contain {verdict} exactly once")
    if not 0 <= reply.min_coverage <= 1:
        raise ConfigError(f"reply.min_coverage is {reply.min_coverage:g}; it is a probability, from 0 to 1")
    _check_grades(reply)
    spelled = [spelling for spellings in reply.words.values() for spelling in spellings]
    expected = {"pair": 2 + (reply.pair is not None and reply.pair.tie is not None), "label": 2}.get(
        reply.kind, len(reply.choice or reply.scores)
    )
    if len(set(spelled)) < len(spelled) or not all(reply.words) or not all(spelled) or len(reply.words) != expected:
        raise ConfigError(f"reply: verdict words must be unique and not empty, got {', '.join(map(repr, spelled))}")
    if len({word.casefold() for word in reply.words}) < len(reply.words):
        raise ConfigError(f"reply: {', '.join(reply.words)} differ only in upper and lower case; choose other words")


def _check_grades(reply: ReplyForm) -> None:
    if isinstance(reply.grade, tuple):
        low, high = reply.grade
        if not -math.inf < low < high < math.inf:
            raise ConfigError(f"reply.grade: expected the lowest grade, then the highest, got {list(reply.grade)}")
        if not math.isclose(reply.scores[-1], high):
            way_out = "add whole: false" if reply.whole else "use at most one decimal"
            raise ConfigError(f"reply.grade: the grades from {low:g} do not end at {high:g}; {way_out}")
    grades = reply.grade.values() if isinstance(reply.grade, dict) else (0, 1)
    if len(set(grades)) < 2 or not all(map(math.isfinite, grades)):
        raise ConfigError("reply.grade: expected at least two words with different, finite grades")


def _verdict(prompt: JudgePrompt) -> VerdictForm:
    reply = prompt.reply
    before, _, after = reply.form.partition("{verdict}")
    head, between = "", before
    if reply.reason is not None:
        if reply.reason < 1:
            raise ConfigError(f"reply.reason is {reply.reason}; it is a number of tokens, so it must be above 0")
        head, found, between = before.rpartition("{reason}")
        if not found:
            late = "{reason}" in after
            finding = "the verdict precedes the reason" if late else "there is no {reason}"
            raise ConfigError(f'reply: {finding}; write, for example, text: "{{reason}}\\nVerdict: {{verdict}}"')
        if not between.strip() or _BRACES.search(head + between):
            raise ConfigError("reply: expected fixed text without slots between {reason} and {verdict}")
    elif reply.json:
        key = next(name for name, slot in reply.json.items() if slot == "verdict")
        quote = '"' if reply.form.partition("{verdict}")[0].endswith('"') else ""
        between = f"{{{json.dumps(key)}: {quote}"
    else:
        between = _BRACES.split(before.rpartition("\n")[2])[-1].lstrip()
    stop = between.strip()
    if reply.json and reply.reason is not None:
        stop = json.dumps(next(name for name, slot in reply.json.items() if slot == "verdict"))
    words = reply.words
    return VerdictForm(
        words=words,
        scores=reply.scores,
        tie=len(words) == 3 and reply.kind == "pair",
        before=between,
        head=head,
        stop=stop,
        reason_tokens=reply.reason,
        min_coverage=reply.min_coverage,
    )


_READINGS: dict[PromptKind, JudgeReading] = {
    "pair": "letters", "choice": "letters", "grade": "grade", "label": "yes-no",
}  # fmt: skip


@plain_dataclass(frozen=True, kw_only=True)
class PromptTemplate(Template):
    """The template of a prompt file."""

    judge_prompt: JudgePrompt

    @property
    def sha(self) -> str:
        """Hash of the prompt."""
        return self.judge_prompt.sha

    def sha_for(self, answers: int) -> str:
        """Return the hash, which does not depend on the number of answers."""
        return self.judge_prompt.sha

    @property
    def shows_reference(self) -> bool:
        """Whether the prompt has a slot for the reference."""
        return "reference" in self.judge_prompt.slots

    @property
    def chat(self) -> bool:
        """Prompt files always use the tokenizer's chat template."""
        return True

    def render(
        self,
        sample: Sample,
        order: tuple[int, ...],
        reference: str | None,
        *,
        scale: tuple[float, float] = (1, 10),
        criterion: str | None = None,
    ) -> Prompt:
        """Render the prompt, which shows a sample's answers in `order`.

        Raises:
            InputError: the sample has no value for a slot, or another number of answers.
        """
        prompt = self.judge_prompt
        values = {"question": Span(sample.question, "question"), "reference": Span(reference or "", "reference")}
        for name in prompt.fields:
            values[name] = Span(slot_text(sample, prompt, name, criterion), "reference")
        for slot, index in zip(prompt.answers, order, strict=True):
            values[slot] = Span(sample.answers[index], "answer")
        slots = {f"{_MARK}{name}": [span] for name, span in values.items()}
        layout = self.layout(len(order))
        return fill(layout.with_reference, slots, layout.sanitizer, chat=True, compares=len(order))


def check_fields(sample: Sample, prompt: JudgePrompt, criterion: str | None = None) -> None:
    """Check that a sample has a value for each slot.

    Raises:
        InputError: a value is missing; the message names the sample and the slot.
    """
    if "reference" in prompt.slots and sample.reference is None:
        raise InputError(f"sample {sample.id}: prompt {prompt.name} shows {{reference}}, but the row has none; add one")
    for name in prompt.fields:
        slot_text(sample, prompt, name, criterion)
    if prompt.reply.kind == "choice" and len(sample.answers) != len(prompt.answers):
        shown = len(prompt.answers)
        raise InputError(f"sample {sample.id}: prompt {prompt.name} shows {shown} answers, not {len(sample.answers)}")


def field_check(prompt: JudgePrompt | None) -> Callable[[Sample], None]:
    """Return a check that a sample has a value for each slot, for `SampleStream`."""
    return lambda sample: None if prompt is None else check_fields(sample, prompt)


def slot_text(sample: Sample, prompt: JudgePrompt, name: str, criterion: str | None = None) -> str:
    """Return the text for a slot that shows another field of the row.

    Raises:
        InputError: the sample has no such field.
    """
    fields = sample.metadata.get(FIELDS)
    value = fields.get(name) if isinstance(fields, Mapping) else None
    if value is None and name == "criterion" and criterion is not None:
        value = criterion
    if value is None:
        value = sample.metadata.get(name)
    if value is None:
        if name in sample.metadata:
            raise InputError(f"sample {sample.id}: prompt {prompt.name} shows {{{name}}}, which is null; write a value")
        known = sorted({*(fields if isinstance(fields, Mapping) else ()), *sample.metadata} - {FIELDS})
        has = f"the row's other fields are {', '.join(known)}" if known else "the row has no other fields"
        raise InputError(
            f"sample {sample.id}: prompt {prompt.name} shows {{{name}}}, but {has}; add a column {name}, pass "
            f"--column {name}=COLUMN, or write {{{{{name}}}}} for literal text"
        )
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _template(prompt: JudgePrompt) -> Template:
    messages: Messages = tuple(
        (
            cast(Role, message.role),
            "".join(f"{{{_MARK}{piece.text}}}" if piece.is_slot else piece.text for piece in pieces),
        )
        for message, pieces in zip(prompt.prompt, prompt.pieces, strict=True)
    )
    verdict = _verdict(prompt)
    layout = Layout(plain=messages, with_reference=messages, delimiters=_delimiters(prompt, verdict))
    return PromptTemplate(
        id=f"prompt:{prompt.name}",
        layout=lambda answers: layout,
        reading=_READINGS[prompt.reply.kind],
        takes_criterion="criterion" in prompt.slots,
        verdict=verdict,
        judge_prompt=prompt,
    )


_MAX_DELIMITER = 60
_MIN_WORD = 3


def _delimiters(prompt: JudgePrompt, verdict: VerdictForm) -> tuple[str, ...]:
    """Return the fixed text next to slots, and the form of the reply, which answers must not imitate."""
    marks: dict[str, None] = {}
    for pieces in prompt.pieces:
        for index, piece in enumerate(pieces):
            if not piece.is_slot:
                lines = [line for line in piece.text.split("\n") if line.strip()]
                ends = [*lines[:1], *lines[-1:]] if index else lines[-1:]
                marks |= dict.fromkeys(_delimiter(line) for line in ends)
    reply, after = verdict.before.rpartition("\n")[2], prompt.reply.form.partition("{verdict}")[2].partition("\n")[0]
    if reply.strip():
        shown = "{n}" if prompt.reply.kind == "grade" and not isinstance(prompt.reply.grade, dict) else None
        marks |= dict.fromkeys(
            f"{reply.strip()}{word}{after.strip()}" for word in ([shown] if shown else verdict.words)
        )
    return tuple(mark for mark in marks if sum(map(str.isalnum, mark)) >= _MIN_WORD or mark[:1] in ("[", "<", "#"))


def _delimiter(line: str) -> str:
    line = line.strip()[:_MAX_DELIMITER]
    return line if line[:1] in ("[", "<", "#") else f"\n{line}"
