"""Base classes shared by all row builders."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, ClassVar, Literal

from judgelm.data.labelled_pair import uniform_hash
from judgelm.data.readers.rows import Reject
from judgelm.errors import ConfigError
from judgelm.prompts.judge_card import PromptSource, template_of
from judgelm.prompts.truncation import TokenizedPrompt, Tokenizer, Truncator
from judgelm.records import Label, Prompt, Sample, Span, Unparsed

IGNORED = -100
"""Label of tokens that do not contribute to the loss, as in torch's cross entropy."""


Kind = Literal["single", "pair", "multi"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions:
    """Options for building rows, as in `JudgeArguments`. `window` is the maximum number of tokens per row."""

    template: str
    window: int
    prompt: PromptSource | None = None
    scale: tuple[float, float] = (1, 10)
    swap_prob: float = 0.0
    reference_drop_prob: float = 0.5
    reason_prob: float = 1.0
    loss_on_prompt: bool = False
    seed: int = 0


@dataclass(slots=True)
class RowCounts:
    """Row statistics. `not_swapped` counts rows that could not be swapped because their reason is ambiguous."""

    made: int = 0
    files: Counter[str] = field(default_factory=Counter)
    kinds: Counter[Kind] = field(default_factory=Counter)
    swapped: int = 0
    not_swapped: int = 0
    with_reference: int = 0
    with_reason: int = 0
    cut: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    scores: set[float] = field(default_factory=set)

    def add(self, other: "RowCounts") -> None:
        """Add the statistics from `other`."""
        for name in (each.name for each in fields(self)):
            mine, more = getattr(self, name), getattr(other, name)
            setattr(self, name, mine | more if isinstance(mine, set) else mine + more)

    @property
    def step(self) -> float:
        """The largest of 1, 0.5, and 0.25 that divides every score, otherwise 0.1."""
        return next((step for step in (1, 0.5, 0.25) if all(score % step == 0 for score in self.scores)), 0.1)

    def __str__(self) -> str:
        left_out = ", ".join(f"{count} {reason}" for reason, count in self.left_out.most_common()) or "none"
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common())
        return (
            f"{self.made} rows ({kinds}), {self.swapped} swapped, {self.with_reference} with a reference, "
            f"{self.with_reason} with a reason, {self.cut} with a truncated answer; left out: {left_out}"
        )


_CONTEXT = 32


_VARIANTS = 8


def _kind_of(sample: Sample) -> Kind:
    return "pair" if len(sample.answers) == 2 else "single" if len(sample.answers) == 1 else "multi"


class FastTokenizer:
    """A tokenizer that computes offsets only on request, which is twice as fast (tokenizers 0.22)."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer

    def __call__(self, text: str | list[str], *, add_special_tokens: bool, **options: Any) -> Mapping[str, Any]:
        """Return the token IDs, and the offsets if requested."""
        if options.get("return_offsets_mapping") or isinstance(text, list):
            encoded: Mapping[str, Any] = self._tokenizer(text, add_special_tokens=add_special_tokens, **options)
            return encoded
        self._backend.no_truncation()
        self._backend.no_padding()
        [encoding] = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return {"input_ids": encoding.ids}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


class RowBuilder:
    """Builds one row per item and epoch."""

    row: ClassVar[type]
    options_type: ClassVar[type[RowOptions]] = RowOptions

    def __init__(self, tokenizer: Tokenizer, options: RowOptions) -> None:
        for name in ("swap_prob", "reference_drop_prob", "reason_prob"):
            if not 0 <= getattr(options, name) <= 1:
                raise ConfigError(f"{name} is {getattr(options, name)}; expected a probability between 0 and 1")
        self.options = options
        self.counts = RowCounts()
        self._template = template_of(options.template, options.prompt)
        self._tokenizer = tokenizer
        self._truncator = Truncator(FastTokenizer(tokenizer), options.window)
        self._tokens = lru_cache(_VARIANTS)(self._tokenise)
        self._ids = lru_cache(_VARIANTS)(self._truncator.ids)
        self._text_before = lru_cache(_VARIANTS)(self._truncator.text)

    @abstractmethod
    def items(self, paths: Sequence[str]) -> Iterator[Any]:
        """Yield items. Each item becomes at most one row per epoch."""

    def build(self, item: Any, epoch: int = 0) -> Any | None:
        """Return a row, or None after counting why the item was left out. Epochs are counted from 0."""
        row = self._row(item, epoch)
        if isinstance(row, str):
            self.counts.left_out[row] += 1
            return None
        return row

    @abstractmethod
    def _row(self, item: Any, epoch: int) -> Any | str:
        """Return the item's row in this epoch, or the reason it was left out."""

    @abstractmethod
    def check(self, paths: Sequence[str]) -> None:
        """Raise InputError if there are no usable rows."""

    def read(self, paths: Sequence[str], epoch: int = 0) -> Iterator[Any]:
        """Yield the rows of one epoch, counting from 0."""
        for item in self.items(paths):
            if (row := self.build(item, epoch)) is not None:
                yield row
        self.check(paths)

    def _problem(self, sample: Sample, scores: tuple[float, ...]) -> str:
        low, high = self.options.scale
        if len(scores) != len(sample.answers):
            return "not one score for each answer"
        if not all(low <= score <= high for score in scores):
            return "scores outside the scale"
        return "single answer without reference" if len(sample.answers) == 1 and sample.reference is None else ""

    def _choose(
        self, sample: Sample, plain: Label | None, referenced: Label | None, epoch: int
    ) -> tuple[Label | None, str | None]:
        if len(sample.answers) == 1:
            return referenced or plain, sample.reference
        if self.options.prompt is not None:
            shown = self._template.shows_reference
            return (referenced or plain, sample.reference) if shown else (plain or referenced, None)
        if sample.reference is None or referenced is None:
            return plain, None
        dropped = uniform_hash(self.options.seed, sample.id, "reference", epoch) < self.options.reference_drop_prob
        return (plain, None) if dropped and plain is not None else (referenced, sample.reference)

    def _prompt(self, sample: Sample, reference: str | None) -> Prompt:
        order = tuple(range(len(sample.answers)))
        return self._template.render(sample, order, reference, scale=(self.options.scale[0], self.options.scale[1]))

    def _tokenise(self, prompt: Prompt, line: str, reason: str) -> tuple[TokenizedPrompt, list[int]] | Unparsed:
        """Tokenise the truncated prompt and the target (up to half the window)."""
        room = self.options.window // 2
        forced = len(self._ids(prompt.prefill)) if prompt.prefill else 0
        before, ids = self._after_context(prompt, line + reason)
        tokenized = self._truncator.truncate(prompt, min(forced + len(ids) + 1, room))
        if isinstance(tokenized, Unparsed):
            return tokenized
        if before is None or tokenized.ids[-1:] != [before]:
            ids = self._after_prompt(tokenized, prompt, line + reason)
        whole = [*ids, self._tokenizer.eos_token_id] if reason else ids
        return tokenized, whole if len(ids) < room - forced else ids[: room - forced]

    def _after_context(self, prompt: Prompt, text: str) -> tuple[int | None, list[int]]:
        """Return a target's tokens after the prompt, and the preceding token (None if there is no clean split).

        Tokenizers merge only neighbouring tokens, so the split is valid after any prompt with the same last token.
        """
        bare = tuple(span if span.kind == "template" else Span("", span.kind, span.role) for span in prompt.spans)
        context = (self._text_before(bare, chat=prompt.chat) + prompt.prefill)[-_CONTEXT:]
        before = self._ids(context)
        ids = self._truncator.ids(context + text)
        if len(before) > 1 and ids[: len(before)] == before:
            return before[-1], ids[len(before) :]
        return None, self._truncator.ids(text)

    def _after_prompt(self, tokenized: TokenizedPrompt, prompt: Prompt, text: str) -> list[int]:
        whole = self._truncator.encode(tokenized.text + text, chat=prompt.chat)
        before = len(tokenized.ids)
        return whole[before:] if whole[:before] == tokenized.ids else self._truncator.ids(text)

    def _count(
        self, sample: Sample, file: str, reference: str | None, tokenized: TokenizedPrompt, *, with_reason: bool
    ) -> None:
        self.counts.made += 1
        self.counts.files[file] += 1
        self.counts.kinds[_kind_of(sample)] += 1
        self.counts.with_reference += reference is not None and len(sample.answers) > 1
        self.counts.with_reason += with_reason
        self.counts.cut += bool(tokenized.truncations)

    def _reject(self, reject: Reject) -> None:
        self.counts.left_out["unusable line"] += 1
