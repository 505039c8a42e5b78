"""The cards of released judges: YAML files in `judgelm/judges/released/`, each with a source for every fact.

A judge counts as verified where two things were checked: its prompts have the bytes of its authors' own code, and a
reply of it that was published is read as it was meant.
"""

import ast
import hashlib
import re
import textwrap
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from judgelm.engines.model_cache import cache_root
from judgelm.errors import CardError, ConfigError, InputError, ModelError, RunError, not_found
from judgelm.jsonl import parse_json
from judgelm.modes import BatchMode, build_mode
from judgelm.modes.released import MarkedReply, ReleasedMode, ReleasedPrompt
from judgelm.prompts.judge_card import CARD_NAME
from judgelm.records import ThinkingMode
from judgelm.yaml_files import parse_yaml, read_yaml

_TIMEOUT_S = 30
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
"""The sample whose prompt a card's `prompt_sha256` is of."""
_CACHED = re.compile(r"models--([^/]+)--([^/]+)/snapshots/")
_REMOTE = re.compile(r"url\s*=\s*\S*huggingface\.co[/:]([\w.-]+/[\w.-]+?)(?:\.git)?\s*$", re.MULTILINE)


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class WordsFile:
    """A file of a judge's authors.

    Attributes:
        url: its page, at a fixed revision.
        sha256: of its bytes, hex.
        licence: SPDX identifier of what it is published under; empty where its authors state none. Then judgelm does
            not download it: the user brings it.
    """

    url: str
    sha256: str
    licence: str = ""

    @property
    def raw_url(self) -> str:
        """The address of the bytes behind a GitHub page; another address is that of the bytes."""
        return self.url.replace(_GITHUB, _GITHUB_RAW, 1).replace("/blob/", "/", 1)

    @property
    def path(self) -> Path:
        """Where the cache has it."""
        return cache_root() / "words" / self.sha256


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Cut:
    r"""Where words stand in a file: at one of `constant`, `key` and `between`, else they are the whole file.

    Attributes:
        constant: name of a text in Python code: an assignment, or a function that returns it.
        key: of a YAML file.
        between: the texts before and behind the words.
        escaped: how many times over they are written as in the text of a program or of JSON, `\n` for a line's end.
        which: which of several, from 0.
    """

    constant: str = ""
    key: str = ""
    between: tuple[str, str] | None = None
    escaped: int = 0
    which: int = 0


def read_words(file: WordsFile) -> str:
    """The text of a file: from the cache, or downloaded into it.

    Raises:
        ModelError: it is not in the cache, and has no licence or cannot be downloaded; the message says what to bring.
        CardError: the downloaded bytes are others than the card's.
        RunError: the cache cannot be written.
    """
    if not file.path.is_file():
        if not file.licence:
            raise ModelError(
                f"the prompt's words are in {file.url}, for which its authors state no licence; get that file and "
                "bring it by: judgelm judges words NAME --from FILE"
            )
        keep_words(file, _download(file), origin=file.raw_url)
    return file.path.read_text(encoding="utf-8")


def bring_words(files: list[WordsFile], copy: Path) -> int:
    """Take files from a copy that the user has: one file, or a folder with them anywhere in it; how many were new.

    Raises:
        InputError: none of them is there.
        RunError: the cache cannot be written.
    """
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
        raise InputError(f"{copy}: holds none of the files that this judge needs: {wanted}")
    for file in held:
        keep_words(file, by_hash[file.sha256], origin=str(copy))
    return len(held)


def keep_words(file: WordsFile, content: bytes, *, origin: str) -> None:
    """Write a file into the cache.

    Raises:
        CardError: its bytes are others than the card's.
        RunError: the cache cannot be written.
    """
    if (digest := hashlib.sha256(content).hexdigest()) != file.sha256:
        raise CardError(f"{origin}: has sha256 {digest[:12]}, and the card states {file.sha256[:12]}; nothing was used")
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        partial = file.path.with_suffix(".part")
        partial.write_bytes(content)
        partial.replace(file.path)
    except OSError as error:
        raise RunError(f"{file.path}: cannot write: {error.strerror or error}") from error


def cut(text: str, where: Cut, *, location: str) -> str:
    """The words in a file's text.

    Args:
        text: of the file.
        where: they stand.
        location: names the file in errors.

    Raises:
        CardError: there are none.
    """
    if where.constant:
        texts = _constants(text, where.constant)
    elif where.key:
        value = parse_yaml(text).get(where.key)
        texts = [value] if isinstance(value, str) else []
    else:
        before, after = map(re.escape, where.between or ("", ""))
        texts = [text] if where.between is None else re.findall(f"{before}(.*?)(?={after})", text, re.DOTALL)
    if where.which >= len(texts):
        raise CardError(f"{location}: no words at {where.constant or where.key or where.between}; the card is wrong")
    words = texts[where.which]
    for _ in range(where.escaped):
        words = _unescaped(words)
    return words


def _download(file: WordsFile) -> bytes:
    try:
        with urllib.request.urlopen(file.raw_url, timeout=_TIMEOUT_S) as answer:
            content: bytes = answer.read()
    except (urllib.error.URLError, TimeoutError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise ModelError(
            f"{file.raw_url}: cannot download the prompt's words ({file.licence}): {reason}; get the file on another "
            "machine and bring it by: judgelm judges words NAME --from FILE"
        ) from error
    return content


def _unescaped(words: str) -> str:
    literal: str = ast.literal_eval('"""' + words.replace('"""', '\\"\\"\\"') + '\n"""')
    return literal[:-1]


def _constants(code: str, name: str) -> list[str]:
    """The texts that a name is given, in order."""
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
    """The text of an expression of constants, sums, `textwrap.dedent(...)` and `....strip()`; None for any other.

    In an f-string the names stay in their braces.
    """
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
"""A text, where it stands in a file of a judge's authors, or pieces of both."""


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Checkpoint:
    """A judge's weights on the hub.

    Attributes:
        id: hub id, owner/name.
        parameters: in billions.
        base: hub id of the model that it was trained from; empty where its authors do not say.
        licence: of the weights, as the hub or the authors state it; empty where neither does.
    """

    id: str
    parameters: float
    base: str = ""
    licence: str = ""

    def gigabytes(self, dtype: str) -> float:
        """Memory of the weights alone; keys and values come on top."""
        return self.parameters * {"float32": 4, "bfloat16": 2, "int8": 1, "4bit": 0.5}[dtype]


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class PublishedReply:
    """A reply that was published, as evidence that this judge's replies are read.

    Attributes:
        file: it stands in.
        at: where.
        read: the label, grade or scores that it means.
    """

    file: WordsFile
    at: Cut
    read: str | float | tuple[float, float]


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class ReleasedTask:
    """A task of a released judge.

    Attributes:
        words: the file of its prompt's words; None where the card itself has them.
        user: the user's message: a text, where it stands in the file, or pieces of both; plain text where `chat` is
            False. None where a reference is always shown.
        with_reference: the same, with a place for a reference.
        with_input: the same, with a place for an instruction's input.
        system: the system message, or where it stands; `""` is an empty one, None none.
        slots: text in the words -> what replaces it: `{question}`, `{answer_1}`, `{answer_2}`, `{reference}`,
            `{rubric}`, `{criterion}`, `{levels}` and `{bulleted_levels}`.
        braces: whether doubled braces in the words stand for single ones, as Python's `str.format` has them.
        chat: whether the tokenizer's chat template wraps the messages.
        before: without a chat template, the text before the message; `after` follows it.
        after: see `before`.
        stripped: whether blanks around answers are taken off.
        delimiters: what bounds the blocks; confusables in untrusted text are sanitized.
        reply: format of the reply.
        stop: of a judge that writes its verdict first, what ends the reply behind it.
        max_tokens: room for the reply, as the authors give it.
        prompt_sha256: of the prompt's bytes for `GOLDEN`, made by the authors' own code; empty where that was not done.
        published: replies that were published.
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
    """A judge that others released.

    Attributes:
        name: of its card, for `--card`.
        summary: in a line.
        checkpoints: its weights, of all sizes.
        sources: the pages that the facts of this card are from.
        template: id of judgelm's own template, for judges that were trained on it; then there are no tasks.
        scale: lowest and highest score, with a template.
        tasks: what it does, by the name of the mode (`pair`, `single`).
        tasks_of: name of the card whose tasks it has, instead of its own.
        chat: whether these are wrapped by the tokenizer's chat template instead of that judge's own wrapper.
        thinking: whether its chat template is told to have it think.
        unverified: what was not checked; empty where prompt and reply both were.
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
        """The modes that it judges in, its usual one first."""
        own = ["reward"] if self.template == "reward" else []
        return [*own, "pair", "single", "multi"] if self.template else list(self.tasks)

    @property
    def files(self) -> list[WordsFile]:
        """The files that its prompts' words are in."""
        return list({task.words.sha256: task.words for task in self.tasks.values() if task.words is not None}.values())

    def prompt(self, task: str) -> ReleasedPrompt:
        """The prompt of a task, its words read.

        Raises:
            ModelError: the words are not on this machine, and cannot be had.
            CardError: they are not what the card says.
        """
        return _with_words(f"{self.name}-{task}", self.tasks[task])

    def mode(self, name: str, options: Mapping[str, Any]) -> BatchMode:
        """The mode in which this judge does what mode `name` asks for.

        Raises:
            ConfigError: it does not do that, or has no such option.
            ModelError: the words of its prompt cannot be had.
        """
        if name not in self.tasks:
            raise ConfigError(f"{self.name} has no mode {name}, only {', '.join(self.modes)}; --ignore-card overrides")
        task = self.tasks[name]
        chosen = {"chat": task.chat, "max_tokens": task.max_tokens} | dict(options)
        return build_mode(ReleasedMode, name, chosen, {"prompt": self.prompt(name)})


_CARD = TypeAdapter(ReleasedJudge)


def released_names() -> list[str]:
    """The names of all cards, without reading them."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


@cache
def released_judge(name: str) -> ReleasedJudge:
    """The card of that name.

    Raises:
        ConfigError: there is none.
        CardError: it is no card.
    """
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
    """All cards."""
    return [released_judge(name) for name in released_names()]


def prompt_bytes(prompt: ReleasedPrompt, *, chat: bool) -> bytes:
    """A task's prompt for `GOLDEN`: the texts of its messages, joined by a zero byte."""
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
        raise CardError(
            f"{prompt_id}: the prompt made of {location} has sha256 {digest[:12]}, its authors' code makes "
            f"{task.prompt_sha256[:12]}; install the judgelm that this card is from"
        )
    return prompt


def _slotted(words: str, task: ReleasedTask, location: str) -> str:
    """Words with judgelm's slots in the place of the authors'."""
    for written, ours in task.slots.items():
        if written not in words and "{reference}" not in ours:
            raise CardError(f"{location}: the prompt has no {written!r}; the card is wrong")
        words = words.replace(written, ours)
    return words.replace("{{", "{").replace("}}", "}") if task.braces else words


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognition:
    """The outcome for a model.

    Attributes:
        judge: the released judge that it is; None where it is none, or that is not certain.
        candidates: cards of judges that a folder may be, by its name alone.
    """

    judge: ReleasedJudge | None = None
    candidates: tuple[str, ...] = ()


def recognise(model: str, card: str | None = None, *, adapter: str | None = None) -> Recognition:
    """The released judge that an adapter, else its model, is; one with a `judge.json` is none.

    Args:
        model: hub id, or a folder. A folder is recognised by the hub id in its path in the hub's cache, in its git
            remote, or in `_name_or_path` of its `config.json`.
        card: of the judge, where the user names it; nothing is recognised then.
        adapter: hub id or folder of an adapter on the model.

    Raises:
        ConfigError: there is no such card.
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
    return Recognition(
        candidates=tuple(dict.fromkeys(judge.name for hub_id, judge in known.items() if hub_id.split("/")[1] == name))
    )


def _ids_of(folder: Path) -> list[str]:
    """Hub ids that a folder states of itself."""
    ids = []
    if match := _CACHED.search(f"{folder.resolve().as_posix()}/"):
        ids.append(f"{match[1]}/{match[2]}")
    if match := _REMOTE.search(_text(folder / ".git" / "config")):
        ids.append(match[1])
    try:
        config = parse_json(_text(folder / "config.json") or "{}")
    except ValueError:  # loading the model says so
        config = {}
    if isinstance(config, dict) and isinstance(config.get("_name_or_path"), str):
        ids.append(config["_name_or_path"])
    return ids


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
