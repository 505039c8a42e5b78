"""Prompt templates, which turn a sample into a `Prompt`.

A template has one layout per number of answers. Every judge card and run file contains the hash of the pair layout, so
that training and judging use exactly the same prompts.

- `judgelm-v1`: the exact prompt format the released JudgeLM checkpoints were trained on.
- `judgelm-paper`: the prompts in Figures 3 to 6; `judgelm-chat`: the same text as chat messages.
- `judgelm-compact`: short markers, for judges with a few million parameters.
- `reasoned-chat`, `reasoned-compact`: the judge explains first and ends with `[[1]]` or `[[2]]`, as in J1 (Whitehouse
  et al. 2025) and RM-R1 (Chen et al. 2025); the wording is ours.
- `letters`, `yes-no`, `grade`: for any instruct model; see `judgelm.modes.readings`.
- `reward`: for reward models, which are given the question and the answer as a chat.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Literal

from judgelm.errors import ConfigError, not_found
from judgelm.prompts.sanitization import Sanitizer, sanitizer_for
from judgelm.prompts.trajectory import STEP_MARKER, reference_spans, trajectory_spans
from judgelm.records import Prompt, Role, Sample, Span, SpanKind

Messages = tuple[tuple[Role | None, str], ...]
"""Role and text of each message; a role of None means plain text."""


def sha_of(content: object) -> str:
    """Return the SHA-256 (hex) of the value as canonical JSON."""
    return hashlib.sha256(json.dumps(content, ensure_ascii=False, sort_keys=True).encode()).hexdigest()


def read_texts(path: Path) -> dict[str, Any]:
    """Load prompt texts from a TOML file."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def fill(
    messages: Iterable[tuple[Role | None, str]],
    slots: Mapping[str, Sequence[Span]],
    sanitizer: Sanitizer,
    *,
    chat: bool,
    prefill: str = "",
    compares: int = 1,
) -> Prompt:
    """Fill the slots of a prompt.

    `messages` are pairs of a role and a text with slots such as `{question}`. The spans in `slots` have no role; their
    untrusted text is cleaned by `sanitizer`. If `chat` is set, the tokenizer's chat template wraps the messages.
    """
    spans: list[Span] = []
    sanitized = 0
    for role, message in messages:
        for piece in _pieces(role, message, tuple(slots)):
            if isinstance(piece, Span):
                spans.append(piece)
                continue
            for span in slots[piece]:
                text, count = (span.text, 0) if span.kind in ("template", "image") else sanitizer(span.text)
                sanitized += count
                spans.append(span if role is None and text is span.text else Span(text, span.kind, role, span.step))
    return Prompt(spans=tuple(spans), chat=chat, prefill=prefill, sanitized=sanitized, compares=compares)


@lru_cache(maxsize=1024)
def _pieces(role: Role | None, message: str, slots: tuple[str, ...]) -> list[Span | str]:
    texts = re.split(rf"\{{({'|'.join(slots)})\}}", message)
    pieces = [text if index % 2 else Span(text, "template", role) for index, text in enumerate(texts)]
    # keep empty messages, because chat templates replace a missing message with a default
    return [piece for piece in pieces if isinstance(piece, str) or piece.text or len(texts) == 1]


ONE_ANSWER: Mapping[str, SpanKind] = {"question": "question", "answer_1": "answer"}
"""Slots in prompts that show one answer."""


@dataclass(frozen=True, kw_only=True)
class PromptText:
    """A prompt with slots, for a chat template or as plain text.

    Attributes:
        text: user message with `{question}` and other slots.
        kinds: kind of content, keyed by slot; only `answer` is cut to fit the window.
        delimiters: markers of blocks and verdicts; in untrusted text, they and their confusables are sanitized.
        before: plain text before the message.
        after: plain text after the message, which opens the reply.
    """

    text: str
    kinds: Mapping[str, SpanKind]
    delimiters: tuple[str, ...]
    system: str | None = None
    before: str = ""
    after: str = ""

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """Slots in the text."""
        return tuple(slot for slot in self.kinds if f"{{{slot}}}" in self.text)

    def render(self, values: Mapping[str, str], *, chat: bool) -> Prompt:
        """Fill the slots with untrusted values."""
        messages: list[tuple[Role | None, str]] = [(None, f"{self.before}{self.text}{self.after}")]
        if chat:
            messages = [] if self.system is None else [("system", self.system)]
            messages.append(("user", self.text))
        slots = {slot: [Span(values[slot], self.kinds[slot])] for slot in self.slots}
        return fill(messages, slots, sanitizer_for(self.delimiters), chat=chat)


@dataclass(frozen=True, kw_only=True)
class PromptFamily:
    """A mode's prompts, keyed by name, with a common template ID."""

    id: str
    texts: Mapping[str, PromptText]

    @cached_property
    def sha(self) -> str:
        """SHA-256 (hex) of the ID and the texts."""
        return sha_of({"id": self.id, "texts": {name: text.text for name, text in self.texts.items()}})


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A template's messages for a given number of answers.

    Attributes:
        plain: messages without a reference; None if a reference is always shown.
        with_reference: messages with the slot `{reference}`.
        delimiters: markers around the blocks; `{n}` matches any number.
    """

    plain: Messages | None
    with_reference: Messages
    delimiters: tuple[str, ...]

    @cached_property
    def sanitizer(self) -> Sanitizer:
        """The sanitizer for confusables of the delimiters."""
        return sanitizer_for(self.delimiters)

    def messages(self, *, referenced: bool) -> Messages:
        """Return the messages with or without a reference."""
        if referenced:
            return self.with_reference
        assert self.plain is not None, "this layout requires a reference"
        return self.plain


JudgeReading = Literal["score-line", "letters", "yes-no", "grade", "reward"]
"""How a reply is converted to numbers: from a score line, from the probabilities of letters, yes and no, or grades, or
from a reward.
"""


@dataclass(frozen=True, kw_only=True)
class VerdictForm:
    """How the verdict of a prompt file is read.

    Attributes:
        words: spellings, keyed by verdict word: for a pair first, second, and tie; for a label fulfilled and failed.
        scores: score of each word; empty for letters.
        tie: whether the third word means a tie.
        head: forced beginning of a reply with a reason.
        before: fixed text before the verdict.
        stop: the part of `before` that ends the reason.
        reason_tokens: maximum number of tokens for the reason; None reads the verdict directly.
        min_coverage: minimum total probability of the words.
    """

    words: Mapping[str, tuple[str, ...]]
    scores: tuple[float, ...]
    tie: bool
    head: str
    before: str
    stop: str
    reason_tokens: int | None
    min_coverage: float


@dataclass(frozen=True, kw_only=True)
class Template:
    """A family of layouts, one per number of answers.

    Attributes:
        id: name used in options, cards, and manifests.
        layout: function that returns the layout for a number of answers.
        reading: how the reply is parsed; `verdict` for judges that reason and end with a verdict.
        takes_criterion: whether the prompt asks about the user's criterion.
        of_trajectories: whether answers are shown as trajectory steps.
        verdict: how the verdict is read, for prompt files.
    """

    id: str
    layout: Callable[[int], Layout]
    reading: JudgeReading | Literal["verdict"] = "score-line"
    takes_criterion: bool = False
    of_trajectories: bool = False
    verdict: VerdictForm | None = None

    @property
    def reasons_first(self) -> bool:
        """Whether the judge reasons first and ends with a verdict."""
        return self.reading == "verdict"

    @property
    def reads_alone(self) -> bool:
        """Whether each answer is shown in a separate prompt."""
        return self.reading in ("yes-no", "grade", "reward")

    @property
    def reads_words(self) -> bool:
        """Whether the verdict is based on the probabilities of the first word or on a reward."""
        return self.reads_alone or self.reading == "letters"

    @property
    def shows_reference(self) -> bool:
        """Whether the prompt can show a reference."""
        return True

    @property
    def prefill(self) -> str:
        """Fixed text of the reply before a verdict that is read directly."""
        return "" if self.verdict is None else self.verdict.before.rstrip(" ")

    @property
    def chat(self) -> bool:
        """Whether the tokenizer's chat template wraps the messages."""
        return self.layout(2).with_reference[0][0] is not None

    @cached_property
    def sha(self) -> str:
        """Hash of the pair layout, as in judge cards."""
        return self.sha_for(2)

    def sha_for(self, answers: int) -> str:
        """Return the SHA-256 (hex) of the ID and both texts for this number of answers."""
        layout = self.layout(answers)
        return sha_of({"id": self.id, "plain": layout.plain, "with_reference": layout.with_reference})

    @property
    def sanitizer(self) -> Sanitizer:
        """The sanitizer for confusables of the pair's delimiters."""
        return self.layout(2).sanitizer

    def render(
        self,
        sample: Sample,
        order: tuple[int, ...],
        reference: str | None,
        *,
        scale: tuple[float, float] = (1, 10),
        criterion: str | None = None,
    ) -> Prompt:
        """Render the prompt, which shows a sample's answers in `order` and `reference` unless it is None.

        For score lines, a single answer is shown as the second answer of a pair. The first answer is the reference,
        with the full score prefilled (JudgeLM, Figure 5).

        Args:
            sample: the sample to judge.
            order: indices into `sample.answers`; exactly one if the template shows each answer by itself.
            reference: required for score lines with a single answer.
            scale: lowest and highest score.
            criterion: the criterion, for templates that require one.
        """
        completes = len(order) == 1 and not self.reads_alone
        if not order or (completes and reference is None):
            raise ValueError(f"sample {sample.id}: {'a single answer without a reference' if order else 'no answers'}")
        layout = self.layout(len(order))
        slots = {"question": [Span(sample.question, "question")], "reference": [Span(reference or "", "reference")]}
        if self.of_trajectories:
            slots["reference"] = reference_spans(reference or "", sample.question)
        for rank, index in enumerate(order):
            text = sample.answers[index]
            spans = trajectory_spans(text, rank, sample.question) if self.of_trajectories else [Span(text, "answer")]
            slots[f"answer_{rank + 1}"] = spans
        if self.reads_words:
            slots["criterion"] = [Span(criterion or "", "reference")]
            slots |= {name: [Span(f"{score:g}")] for name, score in zip(("low", "high"), scale, strict=True)}
        return fill(
            layout.messages(referenced=reference is not None),
            slots,
            layout.sanitizer,
            chat=self.chat,
            prefill=f"{scale[1]:g}" if completes else "",
            compares=len(order),
        )


_CORRECT = "Reference answer, which is correct:\n{reference}\n\n"
_GOOD_TRAJECTORY = "Reference, which does the task correctly:\n{reference}\n\n"
_TEXTS = read_texts(Path(__file__).with_name("templates.toml"))
_NUMBERS, _WORDS, _GRADE = (_TEXTS.pop(name) for name in ("numbers", "words", "judgelm-grade"))
_MARK = re.compile("<([a-z]+)>")


def _expanded(text: str, words: Mapping[str, str]) -> str:
    return _MARK.sub(lambda mark: _expanded(words[mark[1]], words), text)


def _each(block: str, slots: Sequence[str], between: str = "") -> str:
    return between.join(block.replace("<n>", str(n)).replace("<slot>", slot) for n, slot in enumerate(slots, 1))


def _messages(text: Mapping[str, Any], slots: Sequence[str], *, referenced: bool) -> Messages:
    answers = len(slots)
    words = _WORDS | {
        "count": _NUMBERS[answers] if answers < len(_NUMBERS) else str(answers),
        "names": f"{', '.join(map(str, range(1, answers)))} and {answers}",
        "better": "better" if answers == 2 else "best",
        "answers": _each(text.get("answer", _WORDS["answer"]), slots),
        "verdicts": _each(_WORDS["verdict"], slots, ", "),
    }
    words |= text.get("referenced", {}) if referenced else {}
    words |= text.get("alone", {}) if "reference" in slots else {}
    return tuple((role or None, _expanded(message, words)) for role, message in text["messages"])


def verdict_text(label: str) -> str:
    """Return the end of a reply that chooses the answer at this position."""
    return f"[[{label}]]"


def _template(template_id: str, text: Mapping[str, Any]) -> Template:
    @cache
    def layout(answers: int) -> Layout:
        slots = ["reference", "answer_1"] if answers == 1 else [f"answer_{rank}" for rank in range(1, answers + 1)]
        marks = (len(slots) == 2 and text.get("pair_delimiters")) or text["delimiters"]
        ranked = [mark.replace("<n>", str(rank)) for mark in marks for rank in range(1, len(slots) + 1)]
        return Layout(
            plain=None if answers == 1 else _messages(text, slots, referenced=False),
            with_reference=_messages(text, slots, referenced=answers > 1),
            delimiters=tuple(dict.fromkeys(ranked)),
        )

    return Template(id=template_id, layout=layout, reading=text.get("reading", "score-line"))


def letters(answers: int) -> str:
    """Return one letter per answer."""
    if answers > (most := len(ascii_uppercase)):
        raise ConfigError(f"{answers} answers: reading letters supports at most {most}; use --reading yes-no")
    return ascii_uppercase[:answers]


def _reading_template(template_id: str, reading: JudgeReading, before: str, after: str) -> Template:
    of_trajectories = template_id.endswith("-trajectory")
    steps: tuple[str, ...] = ()
    block, task, correct = "Answer", "Question", _CORRECT
    if of_trajectories:
        block, task, correct, steps = "Trajectory", "Task", _GOOD_TRAJECTORY, (STEP_MARKER,)

    @cache
    def layout(answers: int) -> Layout:
        end, names, words = f"End of {block.lower()}", [""], {}
        if reading == "letters":
            listed = letters(answers)
            names = [f" {letter}" for letter in listed]
            words = {
                "better": "better" if answers == 2 else "best",
                "letters": " or ".join(filter(None, (", ".join(listed[:-1]), listed[-1]))),
            }
        shown = "".join(f"[{block}{name}]\n{{answer_{rank}}}\n[{end}{name}]\n\n" for rank, name in enumerate(names, 1))
        head, closing = f"{_expanded(before, words)}{task}:\n{{question}}\n\n", _expanded(after, words)
        return Layout(
            plain=(("user", f"{head}{shown}{closing}"),),
            with_reference=(("user", f"{head}{correct}{shown}{closing}"),),
            delimiters=tuple(f"[{edge}{name}]" for name in names for edge in (block, end)) + steps,
        )

    takes_criterion = "{criterion}" in f"{before}{after}"
    return Template(
        id=template_id, layout=layout, reading=reading, takes_criterion=takes_criterion, of_trajectories=of_trajectories
    )


_DIALOGUE: Messages = (("user", "{question}"), ("assistant", "{answer_1}"))
_REWARD = Layout(plain=_DIALOGUE, with_reference=_DIALOGUE, delimiters=())

TEMPLATES = {
    template.id: template
    for template in (
        Template(id="reward", layout=lambda answers: _REWARD, reading="reward"),
        *(_template(name, text) for name, text in _TEXTS.items()),
        *(
            _reading_template(name, text["reading"], text.get("before", ""), text["after"])
            for name, text in read_texts(Path(__file__).with_name("readings.toml")).items()
        ),
    )
}


TRAJECTORY_TEMPLATES = {name: TEMPLATES.pop(name) for name in [*TEMPLATES] if name.endswith("-trajectory")}
"""Templates for mode `trajectory`, one per reading. Users cannot select them."""


def get_template(template_id: str) -> Template:
    """Return a template.

    Raises:
        ConfigError: the template does not exist; the message lists the available templates.

    Example:
        >>> from judgelm.records import Sample
        >>> sample = Sample(id="1", question="What is 2 + 2?", answers=("4", "5"))
        >>> prompt = get_template("judgelm-v1").render(sample, (0, 1), None)
        >>> [(span.kind, span.text) for span in prompt.spans if span.kind != "template"]
        [('question', 'What is 2 + 2?'), ('answer', '4'), ('answer', '5')]
    """
    template = TEMPLATES.get(template_id) or TRAJECTORY_TEMPLATES.get(template_id)
    if template is None:
        raise not_found("template", template_id, TEMPLATES)
    return template


def criterion_template(template: Template) -> Template:
    """Return the template for a custom criterion that uses the same reading."""
    name = f"{template.reading}-criterion"
    if template.takes_criterion:
        return template
    if name not in TEMPLATES:
        raise ConfigError(f"template {template.id} does not support criteria; use --reading yes-no, letters, or grade")
    return TEMPLATES[name]


@cache
def grading_family(scale: tuple[float, float]) -> PromptFamily:
    """Return the plain grading prompts for a scale: a chat message (`chat`) and plain text (`plain`)."""
    low, high = (f"{score:g}" for score in scale)
    text, delimiters = _expanded(_GRADE["text"], _WORDS | {"low": low, "high": high}), tuple(_GRADE["delimiters"])
    forms = {"chat": text, "plain": f"{text}\n\n### Response:\n"}
    prompts = {name: PromptText(text=form, kinds=ONE_ANSWER, delimiters=delimiters) for name, form in forms.items()}
    return PromptFamily(id="judgelm-grade", texts=prompts)


def grading_prompt(sample: Sample, scale: tuple[float, float], *, chat: bool) -> Prompt:
    """Return the prompt to grade the sample's first answer without a reference."""
    text = grading_family(scale).texts["chat" if chat else "plain"]
    return text.render({"question": sample.question, "answer_1": sample.answers[0]}, chat=chat)
