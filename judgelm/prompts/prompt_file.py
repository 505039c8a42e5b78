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

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import TypeAdapter, ValidationError

from judgelm.bounds import read_text
from judgelm.errors import ConfigError
from judgelm.prompts.judge_prompt import (
    MAX_DECIMAL_RANGE,
    JudgePrompt,
    PromptKind,
    ReplyForm,
    is_answer,
    line_of,
    pieces_of,
    slots_of,
)
from judgelm.prompts.prompt_template import verdict_form
from judgelm.records import Role
from judgelm.yaml_files import MAX_YAML_BYTES, parse_yaml

_ALONE = ("verdict", "reason", "probability", "score", "score_1")
REPLY_SLOTS: dict[PromptKind, tuple[str, ...]] = {
    "pair": (*_ALONE, "score_2"), "label": _ALONE, "grade": _ALONE, "choice": ("verdict", "reason"),
}  # fmt: skip
DOCS = "see docs/prompts.md"
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_SECTION = re.compile(r"\{\{(?!\s*[^\W\d][\w.-]*\s*\}\})(?:[^{}\n]+\}\}|\{)|\{%.*?%\}")
_RANGE = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:-|to|\.\.)\s*(-?\d+(?:\.\d+)?)")
_FILE = TypeAdapter(tuple[JudgePrompt, ...])


def read_prompts(path: str | Path, known: Sequence[str] = ()) -> tuple[JudgePrompt, ...]:
    """Load the prompts in a file. `known` lists names that are already in use.

    If there is no such file, `grounded` and `grounded-question` are the built-in prompts of mode `grounded`.

    Raises:
        ConfigError: the file cannot be read, or a prompt is invalid; the message names the line where possible.
    """
    built_in = Path(__file__).parent / f"{path}.yaml"
    if _NAME.fullmatch(str(path)) and built_in.is_file() and not Path(path).exists():
        path = built_in
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
        raise ConfigError(f"{path}: {_line_at(source, first['loc'])}prompt {where}: {first['msg']}; {DOCS}") from None
    return tuple(replace(prompt, file=Path(path).name, source=source) for prompt in prompts)


def _line_at(source: str, keys: Sequence[str | int]) -> str:
    """Return `line N: ` for the value at these keys, or the innermost value around it."""
    try:
        node = yaml.compose(source, Loader=yaml.SafeLoader)
    except yaml.YAMLError:  # plain text
        return ""
    for key in keys:
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
        elif isinstance(node, yaml.MappingNode):
            node = next((value for name, value in node.value if name.value == key), node)
    return "" if node is None else f"line {node.start_mark.line + 1}: "


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
    return {"prompt": text, "reply": reply.strip(), "ask": "prompt"}


def name_of(path: str | Path) -> str:
    """Return the default name of a prompt: the file's name in lower case, with hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", Path(path).stem.lower()).strip("-") or "prompt"


def _completed(path: str | Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the name, and expand the short forms of `prompt` and `reply`."""
    if reserved := sorted(entry.keys() & {"file", "source"}):
        raise ConfigError(f"{path}: unknown key {reserved[0]!r}; remove it")
    completed = {"name": name_of(path)} | dict(entry)
    if isinstance(completed["prompt"], str):
        completed["prompt"] = [{"text": completed["prompt"]}]
    if not isinstance(completed.get("reply"), dict):
        messages = completed["prompt"] if isinstance(completed["prompt"], list) else []
        texts = [str(message.get("text", "")) for message in messages if isinstance(message, dict)]
        slots = [
            piece.text for text in texts for piece in pieces_of(text, completed.get("syntax", "")) if piece.is_slot
        ]
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
    verdict_form(prompt)


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
    slots = list(reply.json.values()) if reply.json else slots_of(reply.form)
    known = REPLY_SLOTS[reply.kind]
    if unknown := [slot for slot in slots if slot not in known]:
        written = next((line for line in (reply.text or "").split("\n") if unknown[0] in line), unknown[0])
        raise ConfigError(
            f"{line_of(prompt.source, written)}reply: unknown slot {unknown[0]!r} for {reply.kind}; "
            f"available: {', '.join(known)}"
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
        if not reply.whole and high - low > MAX_DECIMAL_RANGE:
            raise ConfigError(
                f"reply.grade: whole: false requires a range of at most {MAX_DECIMAL_RANGE}, because grades have one "
                "decimal; use a smaller range, or remove whole"
            )
        if not -math.inf < low < high < math.inf:
            raise ConfigError(f"reply.grade: expected the lowest grade, then the highest, got {list(reply.grade)}")
        if not math.isclose(reply.scores[-1], high):
            way_out = "add whole: false" if reply.whole else "use at most one decimal"
            raise ConfigError(f"reply.grade: the grades from {low:g} do not end at {high:g}; {way_out}")
    grades = reply.grade.values() if isinstance(reply.grade, dict) else (0, 1)
    if len(set(grades)) < 2 or not all(map(math.isfinite, grades)):
        raise ConfigError("reply.grade: expected at least two words with different, finite grades")
