r"""Custom prompts: describe a judge prompt and its reply format in a YAML file.

    name: support-desk
    prompt:
      - role: user
        text: |-
          Ticket:
          {question}
          Reply A:
          {answer_1}
          Reply B:
          {answer_2}
          Which reply is better? End with [[A]], [[B]] or [[C]] for a tie.
    reply:
      pair: {first: A, second: B, tie: C}
      text: "{reason}\n[[{verdict}]]"

A file contains one prompt or a list of prompts. The slots are `question`, `reference`, `criterion`, and `answer` or
`answer_1`, `answer_2`, and so on. Other slots are shown to the judge under their names, except slots whose names start
with `ignored`. Write `{{word}}` for a literal `{word}`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from judgelm.dialects.contract import (
    ChatRequest,
    Dialect,
    JudgeResult,
    JudgeTask,
    Render,
    Reply,
    TaskKind,
    ambiguity_note,
    sample_of,
)
from judgelm.dialects.replies import (
    best_answer,
    expected_grade,
    format_number,
    is_fulfilled,
    probability_first,
    rescale,
    results_per_reply,
    room_for_words,
    scores_and_reason,
    verdict_logprobs,
    winner_with_ties,
)
from judgelm.dialects.splits import Pattern, TemplateSplit, literal, resolve_split
from judgelm.errors import ConfigError
from judgelm.records import TokenLogprobs
from judgelm.yaml_files import read_yaml

_FIELDS = ("verdict", "reason", "probability", "score", "score_1", "score_2")
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_STRICT = ConfigDict(extra="forbid")


@dataclass(config=_STRICT, frozen=True, slots=True, kw_only=True)
class PromptMessage:
    """A message in a prompt. In `text`, slots are written in braces."""

    text: str
    role: str = "user"


@dataclass(config=_STRICT, frozen=True, slots=True, kw_only=True)
class PairWords:
    """Verdict words for a pair. If `tie` is not set, ties go to the answer that is more likely to be better."""

    first: str
    second: str
    tie: str | None = None


@dataclass(config=_STRICT, frozen=True, slots=True, kw_only=True)
class LabelWords:
    """Verdict words for a label."""

    fulfilled: str
    failed: str


@dataclass(config=_STRICT, frozen=True, slots=True, kw_only=True)
class ReplyForm:
    """The reply format that the client's parser expects. Set exactly one of `pair`, `choice`, `grade`, and `label`.

    Attributes:
        choice: one verdict word per answer, for three or more answers.
        grade: lowest and highest grade.
        text: contains `{verdict}` and optionally `{reason}`, `{probability}`, `{score_1}`, and `{score_2}` (1 to 10).
        json: alternative to `text`; maps JSON fields to these names.
    """

    pair: PairWords | None = None
    choice: tuple[str, ...] | None = None
    grade: tuple[float, float] | None = None
    label: LabelWords | None = None
    whole: bool = True
    text: str | None = None
    json: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> TaskKind:
        """The kind of task, according to the field that is set."""
        kinds: dict[TaskKind, object] = {
            "pair": self.pair, "choice": self.choice, "grade": self.grade, "label": self.label,
        }  # fmt: skip
        given = [kind for kind, value in kinds.items() if value is not None]
        if len(given) != 1:
            finding = " and ".join(given) or "none"
            raise ConfigError(f"reply: expected exactly one of {', '.join(kinds)}, got {finding}")
        return given[0]


@dataclass(config=_STRICT, frozen=True, slots=True, kw_only=True)
class CustomPrompt:
    """A prompt in a prompt file."""

    name: str
    reply: ReplyForm
    prompt: tuple[PromptMessage, ...]


_FILE = TypeAdapter(tuple[CustomPrompt, ...])


def read_prompts(path: Path, known: Sequence[str] = ()) -> tuple[Dialect, ...]:
    """Load dialects from a YAML file. `known` lists names that are already in use.

    Raises:
        ConfigError: the file cannot be read, or a prompt is invalid.
    """
    content = read_yaml(path)
    try:
        prompts = _FILE.validate_python(content if isinstance(content, list) else [content])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path}: prompt {where}: {first['msg']}; see docs/replacing-gpt4/own-prompts.md") from None
    if not prompts:
        raise ConfigError(f"{path}: no prompts found; see docs/replacing-gpt4/own-prompts.md")
    names = [*known]
    dialects = []
    for custom in prompts:
        try:
            if not _NAME.fullmatch(custom.name) or custom.name in names:
                raise ConfigError("the name is already in use, or contains characters other than a-z, 0-9, and hyphens")
            dialects.append(custom_dialect(custom))
        except ConfigError as error:
            raise ConfigError(f"{path}: {custom.name}: {error}") from None
        names.append(custom.name)
    return tuple(dialects)


def custom_dialect(custom: CustomPrompt) -> Dialect:
    """Create a dialect from a prompt."""
    roles = tuple(message.role for message in custom.prompt)
    patterns = [_pattern(message.text) for message in custom.prompt]
    kind = custom.reply.kind
    slots = [_plain(slot) for pattern in patterns for slot in pattern.slots]
    _check_answers(kind, slots, custom.reply)
    _check_reply(custom.reply)

    def recognise(request: ChatRequest) -> JudgeTask | None:
        texts = request.only(*roles) or (request.only("prompt") if roles == ("user",) else None)
        if texts is None:
            return None
        splits = [_split(pattern, text) for pattern, text in zip(patterns, texts, strict=True)]
        matches = [split for split in splits if split is not None]
        if len(matches) < len(splits):
            return None
        values = {slot: text for split in matches for slot, text in split.values.items()}
        return _task(custom, kind, values, ambiguity_note(*matches))

    return Dialect(name=custom.name, recognise=recognise, render=_render(custom.reply), templates=tuple(patterns))


def _pattern(text: str) -> Pattern:
    """Give repeated slots unique names. Their texts must be identical."""
    pattern = Pattern(text.strip())
    seen: dict[str, int] = {}
    parts = [literal(pattern.anchors[0])]
    for slot, anchor in zip(pattern.slots, pattern.anchors[1:], strict=True):
        seen[slot] = seen.get(slot, 0) + 1
        parts += [f"{{{slot if seen[slot] == 1 else f'{slot}__{seen[slot]}'}}}", literal(anchor)]
    for (first, second), anchor in zip(pairwise(pattern.slots), pattern.anchors[1:], strict=False):
        if not anchor:
            raise ConfigError(f"there is no fixed text between {{{first}}} and {{{second}}}; add some")
    return Pattern("".join(parts))


def _split(pattern: Pattern, text: str) -> TemplateSplit | None:
    if not pattern.slots:
        return TemplateSplit(values={}, ambiguous=False) if text == pattern.anchors[0] else None
    repeated = {slot: _plain(slot) for slot in pattern.slots if slot != _plain(slot)}
    return resolve_split(pattern, text, same=repeated)


def _plain(slot: str) -> str:
    return slot.partition("__")[0]


def _answers(slots: Sequence[str]) -> list[str]:
    named = {slot for slot in slots if slot == "answer" or slot.removeprefix("answer_").isdigit()}
    return sorted(named, key=lambda slot: int(slot.removeprefix("answer_") if slot != "answer" else 1))


def _check_answers(kind: TaskKind, slots: Sequence[str], reply: ReplyForm) -> None:
    answers = _answers(slots)
    wanted = {"pair": 2, "choice": len(reply.choice or ())}.get(kind, 1)
    usual = ["answer"] if wanted == 1 else [f"answer_{index + 1}" for index in range(wanted)]
    if kind == "choice" and wanted < 3:
        raise ConfigError(f"reply.choice: expected at least 3 verdict words, got {wanted}; for two answers, use pair")
    if answers not in (usual, [f"answer_{index + 1}" for index in range(wanted)]):
        slots_text = ", ".join(answers) or "no answer"
        raise ConfigError(f"a {kind} reply requires the slots {', '.join(usual)}; the prompt has {slots_text}")


def _check_reply(reply: ReplyForm) -> None:
    fields = list(reply.json.values())
    if reply.json and reply.text is not None:
        raise ConfigError("reply: text and json cannot be combined; remove one")
    if unknown := [name for name in fields if name not in _FIELDS]:
        raise ConfigError(f"reply.json: unknown field {unknown[0]!r}; available: {', '.join(_FIELDS)}")
    text = reply.text
    if (text is not None and text.count("{verdict}") != 1) or (reply.json and fields.count("verdict") != 1):
        raise ConfigError("reply: must contain {verdict} exactly once")
    named = reply.pair or reply.label
    words = [word for word in (astuple(named) if named else reply.choice or ()) if word is not None]
    if len(set(words)) < len(words) or not all(words):
        raise ConfigError(f"reply: verdict words must be unique and not empty, got {', '.join(map(repr, words))}")
    if reply.grade is not None and not reply.grade[0] < reply.grade[1]:
        raise ConfigError(f"reply.grade: expected the lowest grade, then the highest, got {list(reply.grade)}")


def _task(custom: CustomPrompt, kind: TaskKind, values: Mapping[str, str], doubt: str) -> JudgeTask:
    answers = _answers(list(values))
    main_slots = {"question", "reference", *answers}
    metadata = {
        slot: text
        for slot, text in values.items()
        if slot not in main_slots and slot == _plain(slot) and not slot.startswith("ignored")
    }
    shown = [values[slot] for slot in answers]
    sample = sample_of(values.get("question", ""), shown, values.get("reference"), **metadata)
    return JudgeTask(dialect=custom.name, kind=kind, sample=sample, scale=custom.reply.grade, doubt=doubt)


def _render(form: ReplyForm) -> Render:
    def render(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> Reply:
        parts = [_reply_parts(form, task, request, drawn) for drawn in results_per_reply(request, result)]
        texts = tuple("".join(each) for each in parts)
        if form.json and request.forced_tool is not None:
            return Reply(tool=request.forced_tool, arguments=texts[0])
        before, verdict, after = parts[0]
        if not request.logprobs or verdict not in (shares := _shares(form, result)):
            return Reply(texts=texts)
        tokens = verdict_logprobs(before + verdict, verdict, shares, request.top_logprobs)
        rest = (TokenLogprobs(token=after, logprob=0.0, candidates=((after, 0.0),)),) if after else ()
        return Reply(texts=texts, logprobs=(*tokens, *rest))

    return render


def _shares(form: ReplyForm, result: JudgeResult) -> dict[str, float]:
    if form.pair is not None:
        first = probability_first(result)
        return {form.pair.first: first, form.pair.second: 1 - first}
    if form.label is not None and result.correct is not None:
        return {form.label.fulfilled: result.correct, form.label.failed: 1 - result.correct}
    return {}


def _reply_parts(form: ReplyForm, task: JudgeTask, request: ChatRequest, result: JudgeResult) -> tuple[str, str, str]:
    fields = _fields(form, task, result)
    room = room_for_words(request, len("".join(_filled(form, fields | {"reason": ""}))))
    return _filled(form, fields | {"reason": scores_and_reason(result, room)})


def _filled(form: ReplyForm, fields: Mapping[str, Any]) -> tuple[str, str, str]:
    if form.json:
        return json.dumps({name: fields[field] for name, field in form.json.items()}, ensure_ascii=False), "", ""
    before, verdict, after = (form.text if form.text is not None else "{verdict}").partition("{verdict}")
    for name, value in fields.items():
        shown = value if isinstance(value, str) else format_number(float(value), 4)
        before, verdict, after = (part.replace(f"{{{name}}}", shown) for part in (before, verdict, after))
    return before.lstrip(), verdict, after.rstrip()


def _fields(form: ReplyForm, task: JudgeTask, result: JudgeResult) -> dict[str, Any]:
    fields: dict[str, Any] = {"verdict": _verdict(form, task, result)}
    if task.kind == "pair":
        fields["probability"] = round(probability_first(result), 4)
    elif result.correct is not None:
        fields["probability"] = round(result.correct, 4)
    for index, score in enumerate(result.scores[:2]):
        fields[f"score_{index + 1}"] = round(score, 2)
    return fields | {"score": fields["verdict"] if task.kind == "grade" else fields.get("score_1")}


def _verdict(form: ReplyForm, task: JudgeTask, result: JudgeResult) -> str | float:
    if form.pair is not None:
        winner = winner_with_ties(task, result, ties=form.pair.tie is not None)
        return {1: form.pair.first, 2: form.pair.second, "tie": form.pair.tie or ""}[winner]
    if form.choice is not None:
        return form.choice[best_answer(task, result)]
    if form.label is not None:
        return form.label.fulfilled if is_fulfilled(result) else form.label.failed
    assert form.grade is not None
    grade = rescale(expected_grade(result), form.grade, whole=form.whole)
    return int(grade) if form.whole else round(grade, 2)
