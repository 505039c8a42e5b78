"""Labelled answers -> token rows that TRL trains on: pairs, single answers, three answers and more.

A row is made by the same template and the same `fit` that batch runs use. The prompt's tokens carry no loss; a target
that ends with its reason gets the end-of-sequence token; a bare score line does not, since a judge may go on from it,
and neither does a reason that had to be cut (to half the window). What does not fit is counted and left out.

Of a single answer the prompt ends in the forced score of its reference, `10`, which is tokenised with the prompt and
carries no loss, as at test time; the target is what the judge writes behind it: a blank, its score, the line's end.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from judgelm.data.augmentation import swap_answers
from judgelm.data.labelled_pair import LabelledPair, uniform_hash
from judgelm.data.readers.rows import Reject
from judgelm.data.samples import SampleStream
from judgelm.errors import ConfigError, InputError
from judgelm.prompts.catalog import get_template
from judgelm.prompts.truncation import TokenizedPrompt, Tokenizer, Truncator
from judgelm.records import Label, Prompt, Sample, Span, Unparsed
from judgelm.training.rows.records import IGNORED, Kind, RowCounts, RowOptions, TokenRow

_CONTEXT = 32
"""Characters before a target that decide how its first token is split off."""
_VARIANTS = 8
"""Prompts of one sample that its epochs repeat: either order, with and without reference."""


def _kind_of(sample: Sample) -> Kind:
    """What a sample can teach."""
    return "pair" if len(sample.answers) == 2 else "single" if len(sample.answers) == 1 else "multi"


class WithoutOffsets:
    """A fast tokenizer that keeps track of offsets only where they are asked for: the same tokens in half the time.

    Args:
        tokenizer: transformers' own.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer

    def __call__(self, text: str, *, add_special_tokens: bool, **options: Any) -> Mapping[str, Any]:
        """Token ids, and offsets where options ask for them."""
        if options.get("return_offsets_mapping"):
            found: Mapping[str, Any] = self._tokenizer(text, add_special_tokens=add_special_tokens, **options)
            return found
        self._backend.no_truncation()
        self._backend.no_padding()
        [encoding] = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return {"input_ids": encoding.ids}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


class RowMaker:
    """What every kind of row is made with: the template, the length policy, the checks; `counts` grows as it is used.

    What a row is made of (`items`) is the same in every epoch, so it is read once; `make` turns it into one epoch's
    row. The few prompts that the epochs of one sample repeat are tokenised once.

    Args:
        tokenizer: a fast tokenizer with an end-of-sequence token.
        options: how.

    Raises:
        ConfigError: no such template, or a probability outside 0 to 1.
    """

    row: ClassVar[type]

    def __init__(self, tokenizer: Tokenizer, options: RowOptions) -> None:
        for name in ("swap_prob", "reference_drop_prob", "reason_prob"):
            if not 0 <= getattr(options, name) <= 1:
                raise ConfigError(f"{name} is {getattr(options, name)}; it is a probability, 0 to 1")
        self.options = options
        self.counts = RowCounts()
        self._template = get_template(options.template)
        self._tokenizer = tokenizer
        self._truncator = Truncator(WithoutOffsets(tokenizer), options.window)
        self._tokens = lru_cache(_VARIANTS)(self._tokenise)
        self._ids = lru_cache(_VARIANTS)(self._truncator.ids)
        self._text_before = lru_cache(_VARIANTS)(self._truncator.text)

    @abstractmethod
    def items(self, paths: Sequence[str]) -> Iterator[Any]:
        """What rows are made of, one for each row of an epoch at most."""

    @abstractmethod
    def make(self, item: Any, epoch: int) -> Any | None:
        """The row of an item in one epoch (from 0); None where it is left out, which `counts` then says."""

    @abstractmethod
    def check(self, paths: Sequence[str]) -> None:
        """Refuse files that nothing was made of, by `counts` after one epoch.

        Raises:
            InputError: names the file, and what became of its rows.
        """

    def read(self, paths: Sequence[str], epoch: int = 0) -> Iterator[Any]:
        """Rows of labelled files, as one epoch (from 0) draws them.

        Raises:
            InputError: a file cannot be read, or has no row that could be used.
        """
        for item in self.items(paths):
            if (row := self.make(item, epoch)) is not None:
                yield row
        self.check(paths)

    def _problem(self, sample: Sample, scores: tuple[float, ...]) -> str:
        """Why nothing can be learned from these scores; empty where it can."""
        low, high = self.options.scale
        if len(scores) != len(sample.answers):
            return "not one score for each answer"
        if not all(low <= score <= high for score in scores):
            return "scores outside the scale"
        return "single answer without reference" if len(sample.answers) == 1 and sample.reference is None else ""

    def _choose(
        self, sample: Sample, plain: Label | None, referenced: Label | None, epoch: int
    ) -> tuple[Label | None, str | None]:
        """The judgment to learn and the reference to show: prompt and target are dropped together."""
        if len(sample.answers) == 1:
            return referenced or plain, sample.reference
        if sample.reference is None or referenced is None:
            return plain, None
        dropped = uniform_hash(self.options.seed, sample.id, "reference", epoch) < self.options.reference_drop_prob
        return (plain, None) if dropped and plain is not None else (referenced, sample.reference)

    def _prompt(self, sample: Sample, reference: str | None) -> Prompt:
        order = tuple(range(len(sample.answers)))
        return self._template.render(sample, order, reference, full_score=self.options.scale[1])

    def _tokenise(
        self, prompt: Prompt, texts: tuple[tuple[str, str], ...]
    ) -> tuple[TokenizedPrompt, list[list[int]]] | None:
        """A prompt with room behind it for the longest of its targets, at most half the window, and the targets.

        Args:
            prompt: what the targets follow.
            texts: first line and reason of each target; the end-of-sequence token stands behind a whole reason only.

        Returns:
            The prompt and each target's tokens; None if the prompt is too long.
        """
        room = self.options.window // 2
        forced = len(self._ids(prompt.prefill)) if prompt.prefill else 0
        behind = [self._behind(prompt, line + reason) for line, reason in texts]
        longest = max(len(ids) for _, ids in behind)
        tokenized = self._truncator.truncate(prompt, min(forced + longest + 1, room))
        if isinstance(tokenized, Unparsed):
            return None
        targets = []
        for (line, reason), (before, ids) in zip(texts, behind, strict=True):
            if before is None or tokenized.ids[-1:] != [before]:
                ids = self._behind_whole(tokenized, prompt, line + reason)
            whole = [*ids, self._tokenizer.eos_token_id] if reason else ids
            targets.append(whole if len(ids) < room - forced else ids[: room - forced])
        return tokenized, targets

    def _behind(self, prompt: Prompt, text: str) -> tuple[int | None, list[int]]:
        """A target's tokens behind the prompt's last characters, and the token that they follow.

        A tokenizer that neither splits nor merges across the border there does not do so behind the whole prompt
        either, if the prompt ends in the same token: merges look at neighbours alone. None where it does.
        """
        bare = tuple(span if span.kind == "template" else Span("", span.kind, span.role) for span in prompt.spans)
        context = (self._text_before(bare, chat=prompt.chat) + prompt.prefill)[-_CONTEXT:]
        before = self._ids(context)
        ids = self._truncator.ids(context + text)
        if len(before) > 1 and ids[: len(before)] == before:
            return before[-1], ids[len(before) :]
        return None, self._truncator.ids(text)

    def _behind_whole(self, tokenized: TokenizedPrompt, prompt: Prompt, text: str) -> list[int]:
        """A target's tokens behind the whole prompt; by themselves where a token would span the border."""
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


class RowBuilder(RowMaker):
    """Turns labelled answers into token rows."""

    row: ClassVar[type] = TokenRow

    def items(self, paths: Sequence[str]) -> Iterator[LabelledPair]:
        """Labelled answers of any number, each with its file as `source`.

        Raises:
            InputError: a file cannot be read.
        """
        for path in paths:
            stream = SampleStream([path], on_reject=self._reject)
            for row, sample in stream.pairs():
                try:
                    plain, referenced = (stream.format.label(row, with_reference) for with_reference in (False, True))
                except InputError:
                    self.counts.left_out["unreadable label"] += 1
                    continue
                bare = replace(sample, metadata={})
                yield LabelledPair(sample=bare, plain=plain, referenced=referenced, source=path)

    def make(self, item: LabelledPair, epoch: int) -> TokenRow | None:
        """A row of labelled answers in one epoch."""
        return self.build(item.sample, item.plain, item.referenced, epoch, item.source)

    def check(self, paths: Sequence[str]) -> None:
        """Refuse a file without a row that could be used.

        Raises:
            InputError: names it.
        """
        for path in paths:
            if not self.counts.files[path]:
                why = ", ".join(f"{count} {reason}" for reason, count in self.counts.left_out.items())
                raise InputError(f"{path}: no row can be trained on ({why or 'the file has no rows'})")

    def build(
        self, sample: Sample, plain: Label | None, referenced: Label | None, epoch: int = 0, file: str = ""
    ) -> TokenRow | None:
        """A row of one sample in one epoch, or None where it is left out, which `counts` then says."""
        sample, plain, referenced = self._swapped(sample, plain, referenced, epoch)
        label, reference = self._choose(sample, plain, referenced, epoch)
        if label is None or label.scores is None:
            self.counts.left_out["no teacher scores"] += 1
            return None
        if problem := self._problem(sample, label.scores):
            self.counts.left_out[problem] += 1
            return None
        drawn = uniform_hash(self.options.seed, sample.id, "reason", epoch) < self.options.reason_prob
        reason, _ = self._truncator.sanitize((label.reason or "").strip() if drawn else "")
        line = " ".join(f"{score:g}" for score in label.scores) + "\n"
        prompt = self._prompt(sample, reference)
        found = self._tokens(prompt, ((f" {line}" if len(label.scores) == 1 else line, reason),))
        if found is None:
            self.counts.left_out["too long"] += 1
            return None
        tokenized, [target] = found
        self._count(sample, file, reference, tokenized, with_reason=bool(reason))
        self.counts.scores.update(label.scores)
        ids = np.array(tokenized.ids + target, dtype=np.int32)
        labels = ids.copy()
        if not self.options.loss_on_prompt:
            labels[: len(tokenized.ids)] = IGNORED
        return TokenRow(sample_id=sample.id, input_ids=ids, labels=labels)

    def _swapped(
        self, sample: Sample, plain: Label | None, referenced: Label | None, epoch: int
    ) -> tuple[Sample, Label | None, Label | None]:
        """The pair the other way round where this epoch draws it so; everything else as it is.

        The draw has a name of its own: the data builder's, by the same seed, would undo what it had swapped.
        """
        labelled = any(label is not None and label.scores is not None for label in (plain, referenced))
        drawn = uniform_hash(self.options.seed, sample.id, "swap while training", epoch) < self.options.swap_prob
        if not drawn or not labelled or len(sample.answers) != 2:
            return sample, plain, referenced
        done = swap_answers(LabelledPair(sample=sample, plain=plain, referenced=referenced)).pair
        self.counts.swapped += done.swapped
        self.counts.not_swapped += not done.swapped
        return done.sample, done.plain, done.referenced
