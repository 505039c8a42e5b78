"""Judges released by other projects, with the prompts and reply formats from their cards.

Decoding is greedy by default; in the authors' code, PandaLM uses 4 beams and Prometheus samples at temperature 1. If a
reply contains several verdicts, they must agree, unless one is marked as final or the card specifies that the last one
counts.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import ConfigDict

from judgelm.errors import ConfigError, InputError
from judgelm.modes.completions import graded, in_sample_order, read_reply, with_usage
from judgelm.modes.flow import Flow, requests_of
from judgelm.modes.labels import compared
from judgelm.modes.mode import BatchMode, SampledMode, check_above_zero, pair_orders, sampling_for
from judgelm.modes.pairwise import mean_scores
from judgelm.parsing.verdicts import StatedVerdict, Statement, settled, unmarked_verdicts
from judgelm.prompts.catalog import PromptText, sha_of
from judgelm.records import Completion, Prompt, Sample, Scores, Shown, SpanKind, Unparsed, winner_of

PairLabel = Literal["1", "2", "tie"]
"""Position of the better answer in the order shown."""

_MAX_MARKED = 64
"""Maximum number of characters between marks. Longer text is not treated as a verdict."""
_AROUND = " \t*_`\"'.:[]()：。"
"""Characters to strip from both ends of a verdict."""


class _Marked(NamedTuple):
    written: str
    position: int
    start: int


@dataclass(frozen=True, kw_only=True)
class MarkedReply:
    """The format of a reply: a label for a pair, a grade for one answer, or scores for two.

    Attributes:
        before: text before the verdict; empty if the verdict is the whole reply.
        after: text after the verdict; if empty, the verdict ends at the end of the line.
        patterns: regular expressions to use instead of marks. Only the first pattern that matches is used; its first
            group is the verdict.
        labels: the better answer or a tie, keyed by verdict; case is ignored.
        scale: lowest and highest score, for formats that use numbers instead of labels.
        values: number of values per verdict: 1 for a grade, 2 for the scores of a pair.
        separator: text between two numbers in the same marks; empty if each number has its own marks.
        deducts: whether the number is a deduction, so that the score is its negative.
        takes: `agreeing` requires all verdicts to agree; `last` uses only the last one.

    Example:
        >>> MarkedReply(before="[[", after="]]", labels={"A": "1", "B": "2", "C": "tie"})("So: [[B]]")
        '2'
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    before: str = ""
    after: str = ""
    patterns: tuple[str, ...] = ()
    labels: Mapping[str, PairLabel] = field(default_factory=dict)
    scale: tuple[float, float] | None = None
    values: Literal[1, 2] = 1
    separator: str = ""
    deducts: bool = False
    takes: Literal["agreeing", "last"] = "agreeing"

    def __post_init__(self) -> None:
        if bool(self.labels) == (self.scale is not None):
            raise ConfigError("a reply format requires either labels or a scale")
        for pattern in self.patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigError(f"pattern {pattern!r}: {error}") from error

    def __call__(self, text: str) -> PairLabel | Scores | Unparsed:
        """Parse a reply after its thinking has been removed."""
        plain = text.replace("：", ":")
        marked = self._matched(plain) if self.patterns else list(self._marked(plain))
        if not marked:
            marks = "in the judge card's format" if self.patterns else f"between {self.before!r} and {self.after!r}"
            return Unparsed("off_grammar", text, f"no verdict {marks}")
        return self._label(marked, text) if self.labels else self._scores(marked, text)

    def _matched(self, text: str) -> list[_Marked]:
        for pattern in self.patterns:
            if matches := list(re.finditer(pattern, text)):
                counted = matches[-1:] if self.takes == "last" else matches
                return [_Marked(match[1] or "", match.start(1), match.start()) for match in counted]
        return []

    def _marked(self, text: str) -> Iterator[_Marked]:
        if not self.before:
            yield _Marked(text.strip(_AROUND + "\n"), 0, 0)
            return
        end = 0
        while (mark := text.find(self.before, end)) >= 0:
            start = mark + len(self.before)
            end = text.find(self.after or "\n", start, start + _MAX_MARKED + len(self.after))
            if end < 0 and not self.after and len(text) - start <= _MAX_MARKED:
                end = len(text)
            if end < 0:
                end = start
                continue
            inner = text.rfind(self.before, start, end)  # skip a mark that is never closed
            if inner >= 0:
                mark, start = inner, inner + len(self.before)
            yield _Marked(text[start:end].strip(_AROUND), mark, mark)

    def _label(self, marked: list[_Marked], text: str) -> PairLabel | Unparsed:
        known = {written.casefold(): label for written, label in self.labels.items()}
        stated = [
            Statement(StatedVerdict(known[mark.written.casefold()], mark.position, mark.written), mark.start)
            for mark in marked
            if mark.written.casefold() in known
        ]
        if not stated:
            return Unparsed("off_grammar", text, f"{marked[-1].written!r} is not one of {', '.join(self.labels)}")
        counted = self._counted(stated, text, unmarked_verdicts(text, known) if self.before else [])
        return counted if isinstance(counted, Unparsed) else known[counted.written.casefold()]

    def _scores(self, marked: list[_Marked], text: str) -> Scores | Unparsed:
        assert self.scale is not None, "a format without labels has a scale"
        read = [(mark, value) for mark in marked for value in self._numbers(mark.written)]
        groups = [read[index : index + self.values] for index in range(0, len(read), self.values)]
        if not groups or len(groups[-1]) < self.values:
            return Unparsed("off_grammar", text, f"expected {self.values} number(s), got {len(read)}")
        stated = []
        for group in groups:
            first, label = group[0][0], " ".join(f"{value:g}" for _, value in group)
            written = first.written if self.patterns else ""
            stated.append(Statement(StatedVerdict(label, first.position, written), first.start))
        counted = self._counted(stated, text, [])
        if isinstance(counted, Unparsed):
            return counted
        values = tuple(0 - float(value) if self.deducts else float(value) for value in counted.label.split())
        low, high = self.scale
        if outside := [value for value in values if not low <= value <= high]:
            return Unparsed("out_of_range", text, f"{outside[0]:g} is outside {low:g} to {high:g}")
        return Scores(values)

    def _numbers(self, written: str) -> list[float]:
        parts = written.split(self.separator or None)
        if self.patterns:
            return [float(part) for part in parts]
        return [value for part in parts if (value := _number(part)) is not None]

    def _counted(self, stated: list[Statement], text: str, unmarked: list[Statement]) -> StatedVerdict | Unparsed:
        return settled(text, stated[-1:] if self.takes == "last" else [*stated, *unmarked], "")


def _number(text: str) -> float | None:
    written = text.strip(_AROUND).split("/")[0].split(" out of ")[0].strip(_AROUND)
    digits = written.replace(".", "", 1)
    return float(written) if digits.isascii() and digits.isdigit() else None


Slots = Mapping[str, str]
"""`question`, `answer_1`, and, if the prompt has slots for them, `answer_2`, `input`, `reference`, and `rubric`."""

HELPFULNESS = """\
[Does the response do what the instruction asks, correctly, and at a useful level of detail?]
Score 1: The response does not address the instruction, or is wrong throughout.
Score 2: The response addresses the instruction in part, with errors or gaps that make it of little use.
Score 3: The response addresses the instruction, with some errors, gaps or needless text.
Score 4: The response does what the instruction asks, with only small shortcomings.
Score 5: The response does all that the instruction asks, correctly and at a useful level of detail."""
"""Default rubric for samples that do not have one. Only its first line is used to compare pairs."""

_RUBRIC_SLOTS = ("rubric", "criterion", "levels", "bulleted_levels")
_KINDS: Mapping[str, SpanKind] = {
    "question": "question",
    "input": "question",
    "reference": "reference",
    "answer_1": "answer",
    "answer_2": "answer",
    **dict.fromkeys(_RUBRIC_SLOTS, "question"),  # never cut, because the last level would be lost first
}


@dataclass(frozen=True, kw_only=True)
class ReleasedPrompt:
    """A released judge's prompt and reply format.

    Attributes:
        texts: message for each combination of `input` and `reference`, keyed by the names of those shown, joined by a
            space.
        before: plain text before the message in the judge's wrapper, including the system message.
        after: plain text after the message in the judge's wrapper.
        stripped: whether whitespace around answers is stripped, as in the authors' code.
        stop: stop strings that end the verdict, if the judge writes it before its reasons.
    """

    id: str
    texts: Mapping[str, str]
    system: str | None = None
    before: str = ""
    after: str = ""
    delimiters: tuple[str, ...]
    stripped: bool = False
    reply: MarkedReply
    stop: tuple[str, ...] = ()

    @cached_property
    def sha(self) -> str:
        """SHA-256 (hex) of the ID, texts, wrapper, and reply format."""
        prompt = {"id": self.id, "texts": dict(self.texts), "system": self.system or ""}
        return sha_of([sha_of(prompt | {"wrapper": [self.before, self.after]}), repr(self.reply)])

    def takes(self, *slots: str) -> bool:
        """Return whether the prompt has any of these slots."""
        return any(f"{{{slot}}}" in text for text in self.texts.values() for slot in slots)

    @cached_property
    def needs_reference(self) -> bool:
        """Whether the prompt always shows a reference."""
        return all("{reference}" in text for text in self.texts.values())

    @cached_property
    def answers(self) -> int:
        """Number of answers shown."""
        return 2 if self.takes("answer_2") else 1

    def render(self, slots: Slots, *, chat: bool) -> Prompt:
        """Render the prompt. `slots` must contain `input` and `reference` only if they should be shown.

        If `chat` is false, the prompt is plain text in the judge's wrapper.
        """
        shown = " ".join(name for name in ("input", "reference") if name in slots)
        text = PromptText(
            text=self.texts[shown],
            kinds=_KINDS,
            delimiters=self.delimiters,
            system=self.system,
            before=self.before,
            after=self.after,
        )
        if self.stripped:
            slots = {slot: value.strip() if _KINDS[slot] == "answer" else value for slot, value in slots.items()}
        return replace(text.render(slots, chat=chat), compares=self.answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedMode(SampledMode):
    """Judge with a released judge, which chooses the better of two answers, scores both, or grades one.

    If the two orders disagree, the verdict is a tie. PandaLM's prompt shows `metadata["instruction"]` and
    `metadata["input"]` separately. Prometheus uses `metadata["rubric"]`, or else `rubric`.

    Attributes:
        rubric: rubric for samples that do not have one; if empty, the built-in rubric is used.
        explain: let a judge that writes its verdict first (PandaLM) add a reason.
        chat: use the tokenizer's chat template instead of the judge's wrapper.
    """

    name: ClassVar[str] = "released"
    shown_fields: ClassVar[tuple[str, ...]] = ("rubric", "instruction", "input")

    prompt: ReleasedPrompt
    both_orders: bool = False
    accept_one_order: bool = False
    reference: Literal["auto", "use", "ignore"] = "auto"
    rubric: str = ""
    explain: bool = False
    chat: bool = False
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        check_above_zero(self, "max_tokens")
        prompt = self.prompt
        if self.both_orders and prompt.answers == 1:
            raise ConfigError(f"judge {prompt.id} grades single answers; remove --both-orders")
        if self.reference == "use" and not prompt.takes("reference"):
            raise ConfigError(f"judge {prompt.id} does not support references; use --reference auto or ignore")
        if self.reference == "ignore" and prompt.needs_reference:
            raise ConfigError(f"judge {prompt.id} always requires a reference; use --reference use")
        if prompt.needs_reference:
            object.__setattr__(self, "reference", "use")
        if self.rubric and not prompt.takes(*_RUBRIC_SLOTS):
            raise ConfigError(f"judge {prompt.id} does not support rubrics; remove the rubric")
        if self.explain and not prompt.stop:
            raise ConfigError(f"judge {prompt.id} always reasons before its verdict; remove explain")

    @classmethod
    def can_vote(cls, fixed: Mapping[str, Any]) -> bool:
        """Return whether the judge reasons before its verdict."""
        return not fixed["prompt"].stop

    @property
    def template(self) -> str:
        """ID of the prompt."""
        return self.prompt.id

    @property
    def template_sha(self) -> str:
        """Hash of the prompt and the reply format."""
        return self.prompt.sha

    @property
    def answers(self) -> tuple[int, int]:
        """Two answers for judges that compare pairs, otherwise one."""
        return (self.prompt.answers, self.prompt.answers)

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        self.check(sample)
        orders = ((0,),) if self.prompt.answers == 1 else pair_orders(self.both_orders)
        stop = () if self.explain else self.prompt.stop
        sampling = sampling_for(self, sample.id, self.max_tokens, stop=stop)
        completions = yield requests_of([self._render(sample, order) for order in orders], sampling)
        shown = [self._read(order, completion) for order, completion in zip(orders, completions, strict=True)]
        if self.prompt.answers == 1:
            return graded(self, sample, shown[0])
        judgment = compared(self, sample, shown, accept_one_order=self.accept_one_order)
        read = [scores for reply in shown if (scores := in_sample_order(reply)) is not None]
        return replace(judgment, scores=mean_scores(read) if read and judgment.verdict is not None else None)

    def check(self, sample: Sample) -> None:
        """Check that the sample has the right number of answers and, if required, a reference."""
        BatchMode.check(self, sample)
        if sample.reference is None and self.reference == "use":
            raise InputError(f"sample {sample.id}: {self.template} requires a reference; add one to each row")

    def _render(self, sample: Sample, order: tuple[int, ...]) -> Prompt:
        slots = {"question": sample.question}
        slots |= {f"answer_{rank}": sample.answers[index] for rank, index in enumerate(order, 1)}
        if "input" in self.prompt.texts:
            slots |= _split_question(sample)
        if self.prompt.takes("reference") and self.reference != "ignore" and sample.reference is not None:
            slots["reference"] = sample.reference
        if self.prompt.takes(*_RUBRIC_SLOTS):
            slots |= _rubric_slots(self._rubric(sample))
        return self.prompt.render(slots, chat=self.chat)

    def _rubric(self, sample: Sample) -> str:
        own = sample.metadata.get("rubric")
        if own is not None and not isinstance(own, str):
            raise InputError(f'sample {sample.id}: field "rubric": expected a string, got {own!r}')
        if own or self.rubric:
            return own or self.rubric
        return HELPFULNESS if self.prompt.answers == 1 else HELPFULNESS.split("\n")[0]

    def _read(self, order: tuple[int, ...], completion: Completion) -> Shown:
        line_ended = bool(self.prompt.stop) and "\n" in "".join(completion.texts).lstrip()
        parse, needs_end = self.prompt.reply, not line_ended
        shown = read_reply(completion, parse, max_tokens=self.max_tokens, order=order, needs_end=needs_end)
        if shown.scores is None or len(shown.scores) < 2:
            return shown
        return replace(shown, label=str(winner_of((shown.scores[0], shown.scores[1]))))


def _rubric_slots(rubric: str) -> dict[str, str]:
    criterion, *levels = rubric.split("\n")
    return {
        "rubric": rubric,
        "criterion": criterion.removeprefix("[").removesuffix("]"),
        "levels": "\n".join(levels),
        "bulleted_levels": "\n".join(f"- {level}" for level in levels),
    }


def _split_question(sample: Sample) -> dict[str, str]:
    instruction, context = sample.metadata.get("instruction"), sample.metadata.get("input")
    if not isinstance(instruction, str) or not isinstance(context, str) or not context:
        return {}
    if sample.question != f"{instruction}\n\n{context}":
        return {}
    return {"question": instruction, "input": context}
