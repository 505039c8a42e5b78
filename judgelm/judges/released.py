"""The cards of released judges: YAML files in `judgelm/judges/released/`, each with a source for every fact.

A judge counts as verified where two things were checked: its prompts have the bytes of its authors' own code, and a
reply of it that was published is read as it was meant.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from judgelm.errors import CardError, ConfigError, not_found
from judgelm.judges.words import Cut, WordsFile, cut, read_words
from judgelm.modes import BatchMode, build_mode
from judgelm.modes.released import MarkedReply, ReleasedMode, ReleasedPrompt
from judgelm.records import ThinkingMode
from judgelm.yaml_files import read_yaml

_FOLDER = Path(__file__).parent / "released"

Words = Cut | str | tuple[Cut | str, ...]
"""A text, where it stands in a file of a judge's authors, or pieces of both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A judge's weights on the hub.

    Attributes:
        id: hub id, owner/name.
        parameters: in billions.
        base: hub id of the model that it was trained from; empty where its authors do not say.
        licence: of the weights, as the hub or the authors state it; empty where neither does.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: str
    parameters: float
    base: str = ""
    licence: str = ""

    def gigabytes(self, dtype: str) -> float:
        """Memory of the weights alone; keys and values come on top."""
        return self.parameters * {"float32": 4, "bfloat16": 2, "int8": 1, "4bit": 0.5}[dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedReply:
    """A reply that was published, as evidence that this judge's replies are read.

    Attributes:
        file: it stands in.
        at: where.
        read: the label, grade or scores that it means.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    file: WordsFile
    at: Cut
    read: str | float | tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
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
        before: where it does not, what stands before the message, and `after` behind it.
        after: see `before`.
        stripped: whether blanks around answers are taken off.
        delimiters: what bounds the blocks; confusables in untrusted text are sanitized.
        reply: format of the reply.
        stop: of a judge that writes its verdict first, what ends the reply behind it.
        max_tokens: room for the reply, as the authors give it.
        prompt_sha256: of the prompt's bytes for `GOLDEN`, made by the authors' own code; empty where that was not done.
        published: replies that were published.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

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


@dataclass(frozen=True, slots=True, kw_only=True)
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

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

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
        return ["pair", "single", "multi"] if self.template else list(self.tasks)

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
            raise ConfigError(
                f"{self.name} judges in mode {' or '.join(self.modes)}, not in {name}; --ignore-card prompts it as any "
                "other model"
            )
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
