"""Cards for released judges: YAML files in `judgelm/judges/released/` that cite a source for every fact.

A judge is verified if its prompts match the authors' code, and a published reply is parsed correctly.
"""

import ast
import hashlib
import re
import textwrap
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from judgelm.engines.model_cache import cache_root
from judgelm.errors import CardError, ConfigError, InputError, ModelError, not_found
from judgelm.jsonl import parse_json, renamed
from judgelm.modes import BatchMode, build_mode
from judgelm.modes.released import MarkedReply, ReleasedMode, ReleasedPrompt
from judgelm.prompts.judge_card import CARD_NAME
from judgelm.records import ThinkingMode
from judgelm.yaml_files import parse_yaml, read_yaml

_TIMEOUT_S = 30
_BRING = "judgelm judges words NAME --from FILE"
_GITHUB, _GITHUB_RAW = "https://github.com/", "https://raw.githubusercontent.com/"
_FOLDER = Path(__file__).parent / "released"
GOLDEN: Mapping[str, str] = {
    "question": "What is 2 + 2?",
    "answer_1": "It is 4.",
    "answer_2": "5, since 2 + 3 = 5.\nOr 4.",
    "reference": "4",
    "rubric": "[Is it right?]\nScore 1: a\nScore 2: b\nScore 3: c\nScore 4: d\nScore 5: e",
    "criterion": "Is it right?",
    "levels": "Score 1: a\nScore 2: b\nScore 3: c\nScore 4: d\nScore 5: e",
    "bulleted_levels": "- Score 1: a\n- Score 2: b\n- Score 3: c\n- Score 4: d\n- Score 5: e",
}
"""The sample used to compute `prompt_sha256`."""
_CACHED = re.compile(r"models--([^/]+)--([^/]+)/snapshots/")
_REMOTE = re.compile(r"url\s*=\s*\S*huggingface\.co[/:]([\w.-]+/[\w.-]+?)(?:\.git)?\s*$", re.MULTILINE)


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class WordsFile:
    """A file with a judge's prompts, published by its authors.

    Attributes:
        url: page of the file at a fixed revision.
        licence: SPDX identifier; if it is empty, the file is not downloaded.
    """

    url: str
    sha256: str
    licence: str = ""

    @property
    def raw_url(self) -> str:
        """The download URL for a GitHub page; other URLs are returned unchanged."""
        return self.url.replace(_GITHUB, _GITHUB_RAW, 1).replace("/blob/", "/", 1)

    @property
    def path(self) -> Path:
        """The path in the cache."""
        return cache_root() / "words" / self.sha256


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Cut:
    """The location of text in a file; by default, the whole file.

    Attributes:
        constant: name of a variable that holds the string, or a function that returns it, in Python code.
        key: key in a YAML file.
        between: strings before and after the text.
        escaped: number of times to unescape the text, as in a string literal.
        which: index of the match to use.
    """

    constant: str = ""
    key: str = ""
    between: tuple[str, str] | None = None
    escaped: int = 0
    which: int = 0


def read_words(file: WordsFile) -> str:
    """Return the text of a file from the cache, and download it if necessary."""
    if not file.path.is_file():
        if not file.licence:
            raise ModelError(f"the prompt is in {file.url}, which has no licence; download it and run: {_BRING}")
        keep_words(file, _download(file), origin=file.raw_url)
    return file.path.read_text(encoding="utf-8")


def bring_words(files: list[WordsFile], copy: Path) -> int:
    """Copy a judge's files from the user's file or folder into the cache, and return the number of files."""
    candidates = [copy] if copy.is_file() else [path for path in copy.rglob("*") if path.is_file()]
    names = {Path(file.url).name for file in files}
    by_hash = {
        hashlib.sha256(content).hexdigest(): content
        for path in candidates
        if copy.is_file() or path.name in names
        for content in [path.read_bytes()]
    }
    held = [file for file in files if file.sha256 in by_hash]
    if not held:
        wanted = "; ".join(f"{file.url} (sha256 {file.sha256[:12]})" for file in files)
        raise InputError(f"{copy} does not contain any of this judge's files: {wanted}")
    for file in held:
        keep_words(file, by_hash[file.sha256], origin=str(copy))
    return len(held)


def keep_words(file: WordsFile, content: bytes, *, origin: str) -> None:
    """Write a file to the cache if its hash matches the card."""
    if (digest := hashlib.sha256(content).hexdigest()) != file.sha256:
        raise CardError(f"{origin} was not used: its sha256 is {digest[:12]}, but the card states {file.sha256[:12]}")
    with renamed(file.path, way_out="") as partial:
        partial.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)


def cut(text: str, where: Cut, *, location: str) -> str:
    """Return the text at a location. `location` is the name of the file for error messages."""
    if where.constant:
        texts = _constants(text, where.constant)
    elif where.key:
        value = parse_yaml(text).get(where.key)
        texts = [value] if isinstance(value, str) else []
    else:
        before, after = map(re.escape, where.between or ("", ""))
        texts = [text] if where.between is None else re.findall(f"{before}(.*?)(?={after})", text, re.DOTALL)
    if where.which >= len(texts):
        raise CardError(f"{location}: nothing found at {where.constant or where.key or where.between}; fix the card")
    words = texts[where.which]
    for _ in range(where.escaped):
        words = _unescaped(words)
    return words


def _download(file: WordsFile) -> bytes:
    try:
        with urllib.request.urlopen(file.raw_url, timeout=_TIMEOUT_S) as answer:
            content: bytes = answer.read()
    except OSError as error:
        finding = f"cannot download the prompt ({file.licence}): {getattr(error, 'reason', None) or error}"
        raise ModelError(f"{file.raw_url}: {finding}; download it on another machine and run: {_BRING}") from error
    return content


def _unescaped(words: str) -> str:
    literal: str = ast.literal_eval('"""' + words.replace('"""', '\\"\\"\\"') + '\n"""')
    return literal[:-1]


def _constants(code: str, name: str) -> list[str]:
    texts: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(code)):
        value: ast.expr | None = None
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in node.targets):
            value = node.value
        elif isinstance(node, ast.FunctionDef) and node.name == name and isinstance(node.body[-1], ast.Return):
            value = node.body[-1].value
        if value is not None and (text := _text_of(value)) is not None:
            texts.append((value.lineno, text))
    return [text for _, text in sorted(texts)]


def _text_of(node: ast.expr) -> str | None:
    """Evaluate constants, sums, `textwrap.dedent(...)`, and `....strip()`. Names in f-strings are kept in braces."""
    match node:
        case ast.JoinedStr(values=values):
            return "".join(
                f"{{{ast.unparse(value.value)}}}" if isinstance(value, ast.FormattedValue) else _text_of(value) or ""
                for value in values
            )
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = (_text_of(left), _text_of(right))
            return None if None in parts else "".join(part for part in parts if part)
        case ast.Call(func=ast.Attribute(attr="strip", value=inner), args=[]):
            return None if (inside := _text_of(inner)) is None else inside.strip()
        case ast.Call(func=ast.Attribute(attr="dedent") | ast.Name(id="dedent"), args=[inner]):
            return None if (inside := _text_of(inner)) is None else textwrap.dedent(inside)
    return None


Words = Cut | str | tuple[Cut | str, ...]
"""A string, its location in a file by the authors, or a sequence of both."""


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Checkpoint:
    """A judge's weights on the hub. `parameters` is in billions; `base` and `licence` are empty if unknown."""

    id: str
    parameters: float
    base: str = ""
    licence: str = ""

    def gigabytes(self, dtype: str) -> float:
        """Return the memory required for the weights, not including the key-value cache."""
        return self.parameters * {"float32": 4, "bfloat16": 2, "int8": 1, "4bit": 0.5}[dtype]


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class PublishedReply:
    """A published reply, and the label, grade, or scores that must be parsed from it (`read`)."""

    file: WordsFile
    at: Cut
    read: str | float | tuple[float, float]


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class ReleasedTask:
    """A task of a released judge.

    Attributes:
        words: file that contains the prompt; None if the prompt is in the card.
        user: user message, or plain text if `chat` is False; None if a reference is always shown.
        system: system message; `""` is an empty message, and None omits the message.
        slots: strings in the prompt and their replacements: `{question}`, `{answer_1}`, `{answer_2}`, `{reference}`,
            `{rubric}`, `{criterion}`, `{levels}`, and `{bulleted_levels}`.
        braces: whether doubled braces stand for single braces, as in `str.format`.
        chat: whether to apply the tokenizer's chat template instead of `before` and `after`.
        delimiters: block delimiters, which are sanitized in untrusted text.
        stop: stop strings for a judge that writes its verdict first.
        prompt_sha256: hash of the prompt for `GOLDEN` created with the authors' code; empty if it was not checked.
    """

    words: WordsFile | None = None
    user: Words | None = None
    with_reference: Words | None = None
    with_input: Words | None = None
    system: Words | None = None
    slots: Mapping[str, str] = field(default_factory=dict)
    braces: bool = False
    chat: bool = True
    before: str = ""
    after: str = ""
    stripped: bool = False
    delimiters: tuple[str, ...]
    reply: MarkedReply
    stop: tuple[str, ...] = ()
    max_tokens: int = 1024
    prompt_sha256: str = ""
    published: tuple[PublishedReply, ...] = ()


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class ReleasedJudge:
    """A judge released by others.

    Attributes:
        template: ID of the judgelm template used for training, if any. Judges with a template have no tasks.
        scale: lowest and highest score, if a template is set.
        tasks_of: name of the card to take the tasks from.
        chat: whether shared tasks use the tokenizer's chat template.
        unverified: what was not checked; empty for verified judges.
    """

    name: str
    summary: str
    checkpoints: tuple[Checkpoint, ...]
    sources: tuple[str, ...]
    template: str = ""
    scale: tuple[float, float] = (1, 10)
    tasks: Mapping[str, ReleasedTask] = field(default_factory=dict)
    tasks_of: str = ""
    chat: bool = False
    thinking: ThinkingMode = "absent"
    unverified: str = ""

    @property
    def modes(self) -> list[str]:
        """The judge's modes, starting with the usual mode."""
        own = ["reward"] if self.template == "reward" else []
        return [*own, "pair", "single", "multi"] if self.template else list(self.tasks)

    @property
    def files(self) -> list[WordsFile]:
        """Files with prompts."""
        return list({task.words.sha256: task.words for task in self.tasks.values() if task.words is not None}.values())

    def prompt(self, task: str) -> ReleasedPrompt:
        """Return the prompt for a task."""
        return _with_words(f"{self.name}-{task}", self.tasks[task])

    def mode(self, name: str, options: Mapping[str, Any]) -> BatchMode:
        """Return a mode adapted to this judge."""
        if name not in self.tasks:
            raise ConfigError(f"{self.name} has no mode {name}; use {', '.join(self.modes)}, or pass --ignore-card")
        task = self.tasks[name]
        chosen = {"chat": task.chat, "max_tokens": task.max_tokens} | dict(options)
        return build_mode(ReleasedMode, name, chosen, {"prompt": self.prompt(name)})


_CARD = TypeAdapter(ReleasedJudge)


def released_names() -> list[str]:
    """Return the names of all cards."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


@cache
def released_judge(name: str) -> ReleasedJudge:
    """Return the card with this name."""
    if name not in released_names():
        raise not_found("card", name, released_names())
    try:
        judge = _CARD.validate_python(read_yaml(_FOLDER / f"{name}.yaml"))
    except ValidationError as error:
        first = error.errors()[0]
        raise CardError(f"card {name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if not judge.tasks_of:
        return judge
    tasks = released_judge(judge.tasks_of).tasks
    return replace(judge, tasks={task: replace(its, chat=judge.chat) for task, its in tasks.items()})


def released_judges() -> list[ReleasedJudge]:
    """Return all cards."""
    return [released_judge(name) for name in released_names()]


def prompt_bytes(prompt: ReleasedPrompt, *, chat: bool) -> bytes:
    """Return the prompt of a task for `GOLDEN`, with the messages joined by a zero byte."""
    slots = {slot: value for slot, value in GOLDEN.items() if slot != "reference"}
    spans = prompt.render(slots, chat=chat).spans
    roles = list(dict.fromkeys(span.role for span in spans))
    texts = ["".join(span.text for span in spans if span.role == role) for role in roles]
    return "\0".join(texts).encode()


def _with_words(prompt_id: str, task: ReleasedTask) -> ReleasedPrompt:
    text = "" if task.words is None else read_words(task.words)
    location = f"card of {prompt_id}" if task.words is None else task.words.url

    def words(where: Words) -> str:
        pieces = where if isinstance(where, tuple) else (where,)
        return "".join(piece if isinstance(piece, str) else cut(text, piece, location=location) for piece in pieces)

    messages = {"": task.user, "reference": task.with_reference, "input": task.with_input}
    prompt = ReleasedPrompt(
        id=prompt_id,
        texts={shown: _slotted(words(where), task, location) for shown, where in messages.items() if where is not None},
        system=None if task.system is None else words(task.system),
        before=task.before,
        after=task.after,
        delimiters=task.delimiters,
        stripped=task.stripped,
        reply=task.reply,
        stop=task.stop,
    )
    if not task.prompt_sha256:
        return prompt
    digest = hashlib.sha256(prompt_bytes(prompt, chat=task.chat)).hexdigest()
    if digest != task.prompt_sha256:
        differ = f"the prompt from {location} has sha256 {digest[:12]}"
        raise CardError(f"{prompt_id}: {differ}; expected {task.prompt_sha256[:12]}; reinstall judgelm")
    return prompt


def _slotted(words: str, task: ReleasedTask, location: str) -> str:
    for written, ours in task.slots.items():
        if written not in words and "{reference}" not in ours:
            raise CardError(f"{location}: {written!r} is not in the prompt; fix the card")
        words = words.replace(written, ours)
    return words.replace("{{", "{").replace("}}", "}") if task.braces else words


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognition:
    """The released judge found for a model. `candidates` are cards with a checkpoint of the folder's name."""

    judge: ReleasedJudge | None = None
    candidates: tuple[str, ...] = ()


def recognise(model: str, card: str | None = None, *, adapter: str | None = None) -> Recognition:
    """Find the released judge for an adapter or model (hub IDs or folders) without a `judge.json`.

    The hub ID of a folder is determined from its path in the hub cache, its git remote, or `_name_or_path` in its
    `config.json`. The user's `card` takes precedence.
    """
    if any((Path(path) / CARD_NAME).is_file() for path in (adapter, model) if path is not None):
        return Recognition()
    if adapter is not None and card is None and (recognition := recognise(adapter)).judge is not None:
        return recognition
    if card is not None:
        return Recognition(judge=released_judge(card))
    folder = Path(model)
    ids = _ids_of(folder) if folder.is_dir() else [model]
    known = {checkpoint.id.casefold(): judge for judge in released_judges() for checkpoint in judge.checkpoints}
    for hub_id in ids:
        if (judge := known.get(hub_id.casefold())) is not None:
            return Recognition(judge=judge)
    if not folder.is_dir():
        return Recognition()
    name = folder.resolve().name.casefold()
    same_name = dict.fromkeys(judge.name for hub_id, judge in known.items() if hub_id.split("/")[1] == name)
    return Recognition(candidates=tuple(same_name))


def _ids_of(folder: Path) -> list[str]:
    ids = []
    if match := _CACHED.search(f"{folder.resolve().as_posix()}/"):
        ids.append(f"{match[1]}/{match[2]}")
    if match := _REMOTE.search(_text(folder / ".git" / "config")):
        ids.append(match[1])
    try:
        config = parse_json(_text(folder / "config.json") or "{}")
    except ValueError:  # the error is reported when the model is loaded
        config = {}
    if isinstance(config, dict) and isinstance(config.get("_name_or_path"), str):
        ids.append(config["_name_or_path"])
    return ids


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
