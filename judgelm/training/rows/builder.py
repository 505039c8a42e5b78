"""Labelled answers -> token rows that TRL trains on (pairs, single answers, three answers and more), on all cores.

A row uses the same template and the same truncation as batch runs. The prompt's tokens carry no loss. A target that
ends with its whole reason gets the end-of-sequence token; a bare score line does not, since a judge may continue it,
nor does a reason that is cut (to half the window). Rows that do not fit are counted and left out.

The prompt of a single answer ends in the forced score of its reference, `10`, which is tokenised with the prompt and
carries no loss, as at test time; the target is what the judge writes after it: a blank, its score, the line's end.

Rows of all epochs are built chunk by chunk, in the order of the files. Chunks do not depend on the number of workers,
and draws depend on ids alone, so the rows are the same bytes. Workers are spawned, never forked: this process may
already hold a GPU, threads and connections.
"""

import contextlib
import os
import signal
import sys
import threading
from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import chain, islice
from multiprocessing import connection, get_context, parent_process
from types import ModuleType
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from judgelm.data.augmentation import swap_answers
from judgelm.data.builder.options import usable_workers
from judgelm.data.labelled_pair import LabelledPair, score_line, training_scores, uniform_hash
from judgelm.data.readers.rows import Reject
from judgelm.data.samples import SampleStream
from judgelm.errors import ConfigError, InputError, RunError
from judgelm.prompts.catalog import get_template, verdict_text
from judgelm.prompts.truncation import TokenizedPrompt, Tokenizer, Truncator
from judgelm.records import Label, Prompt, Sample, Span, Unparsed, failure_name

IGNORED = -100
"""The label of a token without loss, as torch's cross entropy takes it."""

Kind = Literal["single", "pair", "multi"]
"""Kind of a row by its number of answers: one, two, more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions:
    """Options that turn labelled answers into rows.

    Attributes:
        template: id of the template.
        window: most tokens of a row.
        scale: targets outside it are left out; its highest is the score of a single answer's reference.
        swap_prob: probability that a pair is shown with its answers exchanged, scores and reason with them.
        reference_drop_prob: probability that answers judged with a reference are shown without; a single one never is.
        reason_prob: share of rows with a reason after the score line.
        loss_on_prompt: whether the prompt's tokens count too (pre-training of a base).
        seed: of all draws, with a sample's id and the epoch, so no row depends on its position.
    """

    template: str
    window: int
    scale: tuple[float, float] = (1, 10)
    swap_prob: float = 0.0
    reference_drop_prob: float = 0.5
    reason_prob: float = 1.0
    loss_on_prompt: bool = False
    seed: int = 0


@dataclass(slots=True)
class RowCounts:
    """Statistics of the data: rows by kind, scores, and left-out rows by reason.

    `swapped` counts pairs shown the other way round; `not_swapped` pairs that were drawn for it, but whose reason does
    not say clearly which answer it means; `with_reference` prompts with a block for the reference, so no single
    answers, which stand beside theirs; `files` the rows of each file.
    """

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
        """Add statistics of more data."""
        for name in (each.name for each in fields(self)):
            mine, more = getattr(self, name), getattr(other, name)
            setattr(self, name, mine | more if isinstance(mine, set) else mine + more)

    @property
    def step(self) -> float:
        """The widest of 1, 0.5 and 0.25 of which every score is a multiple, else 0.1."""
        return next((step for step in (1, 0.5, 0.25) if all(score % step == 0 for score in self.scores)), 0.1)

    def __str__(self) -> str:
        left_out = ", ".join(f"{count} {reason}" for reason, count in self.left_out.most_common()) or "none"
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common())
        return (
            f"{self.made} rows ({kinds}), {self.swapped} swapped, {self.with_reference} with reference, "
            f"{self.with_reason} with reason, {self.cut} with an answer cut; left out: {left_out}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """One training row.

    Attributes:
        sample_id: of its sample.
        input_ids: shape (tokens,), int32.
        labels: shape (tokens,), int32; `IGNORED` where there is no loss.
    """

    sample_id: str
    input_ids: NDArray[np.int32]
    labels: NDArray[np.int32]


_CONTEXT = 32
"""Characters before a target that affect how its first token is split off."""
_VARIANTS = 8
"""Prompts of one sample that its epochs repeat: either order, with and without reference."""


def _kind_of(sample: Sample) -> Kind:
    return "pair" if len(sample.answers) == 2 else "single" if len(sample.answers) == 1 else "multi"


class FastTokenizer:
    """A tokenizer that tracks offsets only on request: the same tokens in half the time (tokenizers 0.22).

    Args:
        tokenizer: transformers' own.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer

    def __call__(self, text: str | list[str], *, add_special_tokens: bool, **options: Any) -> Mapping[str, Any]:
        """Token ids, and offsets where options request them."""
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
    """Shared parts of all builders: template, length policy and checks; `counts` grows with use.

    The items that rows are made of are the same in every epoch, so they are read once; `build` turns an item into one
    epoch's row. The few prompts that the epochs of one sample repeat are tokenised once.

    Args:
        tokenizer: a fast tokenizer with an end-of-sequence token.
        options: how labelled answers become rows.

    Raises:
        ConfigError: no such template, or a probability outside 0 to 1.
    """

    row: ClassVar[type]
    options_type: ClassVar[type[RowOptions]] = RowOptions

    def __init__(self, tokenizer: Tokenizer, options: RowOptions) -> None:
        for name in ("swap_prob", "reference_drop_prob", "reason_prob"):
            if not 0 <= getattr(options, name) <= 1:
                raise ConfigError(f"{name} is {getattr(options, name)}; it is a probability, 0 to 1")
        self.options = options
        self.counts = RowCounts()
        self._template = get_template(options.template)
        self._tokenizer = tokenizer
        self._truncator = Truncator(FastTokenizer(tokenizer), options.window)
        self._tokens = lru_cache(_VARIANTS)(self._tokenise)
        self._ids = lru_cache(_VARIANTS)(self._truncator.ids)
        self._text_before = lru_cache(_VARIANTS)(self._truncator.text)

    @abstractmethod
    def items(self, paths: Sequence[str]) -> Iterator[Any]:
        """Items that rows are made of: at most one row of an epoch each."""

    def build(self, item: Any, epoch: int = 0) -> Any | None:
        """Build the row of an item in one epoch (from 0); None where it is left out, which `counts` records."""
        row = self._row(item, epoch)
        if isinstance(row, str):
            self.counts.left_out[row] += 1
            return None
        return row

    @abstractmethod
    def _row(self, item: Any, epoch: int) -> Any | str:
        """The row of an item in one epoch, or the reason why it is left out."""

    @abstractmethod
    def check(self, paths: Sequence[str]) -> None:
        """Refuse files without any usable row, by the `counts` of one epoch.

        Raises:
            InputError: names the file, and why its rows were left out.
        """

    def read(self, paths: Sequence[str], epoch: int = 0) -> Iterator[Any]:
        """Rows of labelled files in one epoch (from 0).

        Raises:
            InputError: a file cannot be read, or has no usable row.
        """
        for item in self.items(paths):
            if (row := self.build(item, epoch)) is not None:
                yield row
        self.check(paths)

    def _problem(self, sample: Sample, scores: tuple[float, ...]) -> str:
        """The reason why nothing can be learned from these scores; empty where it can."""
        low, high = self.options.scale
        if len(scores) != len(sample.answers):
            return "not one score for each answer"
        if not all(low <= score <= high for score in scores):
            return "scores outside the scale"
        return "single answer without reference" if len(sample.answers) == 1 and sample.reference is None else ""

    def _choose(
        self, sample: Sample, plain: Label | None, referenced: Label | None, epoch: int
    ) -> tuple[Label | None, str | None]:
        """Choose the judgment to learn and the reference to show, which belong together."""
        if len(sample.answers) == 1:
            return referenced or plain, sample.reference
        if sample.reference is None or referenced is None:
            return plain, None
        dropped = uniform_hash(self.options.seed, sample.id, "reference", epoch) < self.options.reference_drop_prob
        return (plain, None) if dropped and plain is not None else (referenced, sample.reference)

    def _prompt(self, sample: Sample, reference: str | None) -> Prompt:
        order = tuple(range(len(sample.answers)))
        return self._template.render(sample, order, reference, scale=(self.options.scale[0], self.options.scale[1]))

    def _tokenise(
        self, prompt: Prompt, texts: tuple[tuple[str, str], ...]
    ) -> tuple[TokenizedPrompt, list[list[int]]] | Unparsed:
        """Tokenise a prompt, with room for the longest of its targets (at most half the window), and the targets.

        Args:
            prompt: of all targets.
            texts: first line and reason of each target; only a whole reason gets the end-of-sequence token.

        Returns:
            The prompt and each target's tokens, or why the prompt cannot be trained on.
        """
        room = self.options.window // 2
        forced = len(self._ids(prompt.prefill)) if prompt.prefill else 0
        tokenized_texts = [self._after_context(prompt, line + reason) for line, reason in texts]
        longest = max(len(ids) for _, ids in tokenized_texts)
        tokenized = self._truncator.truncate(prompt, min(forced + longest + 1, room))
        if isinstance(tokenized, Unparsed):
            return tokenized
        targets = []
        for (line, reason), (before, ids) in zip(texts, tokenized_texts, strict=True):
            if before is None or tokenized.ids[-1:] != [before]:
                ids = self._after_prompt(tokenized, prompt, line + reason)
            whole = [*ids, self._tokenizer.eos_token_id] if reason else ids
            targets.append(whole if len(ids) < room - forced else ids[: room - forced])
        return tokenized, targets

    def _after_context(self, prompt: Prompt, text: str) -> tuple[int | None, list[int]]:
        """A target's tokens after the prompt's last characters, and the token before them.

        A tokenizer that neither splits nor merges across the border there does not do so after the whole prompt
        either, if the prompt ends in the same token: merges depend on neighbours alone. None where it does.
        """
        bare = tuple(span if span.kind == "template" else Span("", span.kind, span.role) for span in prompt.spans)
        context = (self._text_before(bare, chat=prompt.chat) + prompt.prefill)[-_CONTEXT:]
        before = self._ids(context)
        ids = self._truncator.ids(context + text)
        if len(before) > 1 and ids[: len(before)] == before:
            return before[-1], ids[len(before) :]
        return None, self._truncator.ids(text)

    def _after_prompt(self, tokenized: TokenizedPrompt, prompt: Prompt, text: str) -> list[int]:
        """A target's tokens after the whole prompt; tokenised alone where a token would span the border."""
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


_KEPT = {"turns"}
"""Fields of a sample that rows are made of; the others would be copied between processes."""


class SFTRowBuilder(RowBuilder):
    """Builds the rows of `train/sft.py` from labelled answers."""

    row: ClassVar[type] = TokenRow

    def items(self, paths: Sequence[str]) -> Iterator[LabelledPair]:
        """Samples with one label or two, each with its file as `source`.

        A label with a preference and without scores gets those of `scores_by_preference`.

        Raises:
            InputError: a file cannot be read.
        """
        for path in paths:
            stream = SampleStream([path], on_reject=self._reject)
            for row, sample in stream.pairs():
                try:
                    plain, referenced = stream.labels(row, False, True)
                except InputError:
                    self.counts.left_out["unreadable label"] += 1
                    continue
                bare = replace(sample, metadata={key: sample.metadata[key] for key in _KEPT & sample.metadata.keys()})
                yield LabelledPair(sample=bare, plain=self._scored(plain), referenced=referenced, source=path)

    def _scored(self, label: Label | None) -> Label | None:
        """The label, with scores made of its preference where it has no others."""
        return None if label is None else replace(label, scores=training_scores(label, self.options.scale))

    def check(self, paths: Sequence[str]) -> None:
        """Refuse a file without a usable row.

        Raises:
            InputError: names it.
        """
        for path in paths:
            if not self.counts.files[path]:
                reasons = ", ".join(f"{count} {reason}" for reason, count in self.counts.left_out.items())
                raise InputError(f"{path}: no row can be trained on ({reasons or 'the file has no rows'})")

    def _row(self, item: LabelledPair, epoch: int) -> Any | str:
        pair = self._swap(item, epoch)
        sample = pair.sample
        label, reference = self._choose(sample, pair.plain, pair.referenced, epoch)
        if label is None or label.scores is None:
            return "no teacher scores"
        if problem := self._problem(sample, label.scores):
            return problem
        line, reason = self._target(sample, label, epoch)
        if self._template.reasons_first and (problem := _no_verdict(sample, label, reason)):
            return problem
        tokens = self._tokens(self._prompt(sample, reference), ((line, reason),))
        if isinstance(tokens, Unparsed):
            return failure_name(tokens.code)
        tokenized, [target] = tokens
        if self._template.reasons_first and target[-1] != self._tokenizer.eos_token_id:
            return "reason too long for a verdict behind it"
        self._count(sample, item.source, reference, tokenized, with_reason=bool(reason))
        self.counts.scores.update(label.scores)
        ids = np.array(tokenized.ids + target, dtype=np.int32)
        labels = ids.copy()
        if not self.options.loss_on_prompt:
            labels[: len(tokenized.ids)] = IGNORED
        return TokenRow(sample_id=sample.id, input_ids=ids, labels=labels)

    def _target(self, sample: Sample, label: Label, epoch: int) -> tuple[str, str]:
        """The score line and the reason; of a judge that reasons first nothing, and the reason with its verdict."""
        drawn = uniform_hash(self.options.seed, sample.id, "reason", epoch) < self.options.reason_prob
        reason, _ = self._truncator.sanitize((label.reason or "").strip() if drawn else "")
        if self._template.reasons_first:
            return "", f"{reason}\n{verdict_text(str(label.winner))}" if reason else ""
        line = score_line(label.scores or ()) + "\n"
        return f" {line}" if len(sample.answers) == 1 else line, reason

    def _swap(self, item: LabelledPair, epoch: int) -> LabelledPair:
        """The pair with its answers exchanged where this epoch draws so; everything else unchanged.

        The draw's name differs from the data builder's, which by the same seed would undo its swaps.
        """
        labels = [label for label in (item.plain, item.referenced) if label is not None]
        labelled = any(label.scores is not None or label.preference is not None for label in labels)
        drawn = uniform_hash(self.options.seed, item.sample.id, "swap while training", epoch) < self.options.swap_prob
        if not drawn or not labelled or len(item.sample.answers) != 2:
            return item
        pair = swap_answers(item).pair
        self.counts.swapped += pair.swapped
        self.counts.not_swapped += not pair.swapped
        return pair


def _no_verdict(sample: Sample, label: Label, reason: str) -> str:
    """The cause why a judge that reasons first cannot learn from a label; empty where it can."""
    if len(sample.answers) != 2:
        return "not a pair"
    return "" if label.winner in (1, 2) and reason else "a tie" if label.winner == "tie" else "no reason"


CHUNK = 256
"""Items of a chunk."""
_FEW_CHUNKS = 8
"""Up to this many are built in this process: a worker takes some seconds to start."""
_TOKENS = pa.list_(pa.int32())
_COLUMNS: dict[Any, pa.DataType] = {str: pa.string(), float: pa.float64(), int: pa.int64()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowJob:
    """The task of a worker.

    Attributes:
        builder: class that makes rows, for a tokenizer and options.
        tokenizer: a fast transformers tokenizer.
        options: how labelled answers become rows.
        epochs: the epochs to build, from 0.
    """

    builder: Callable[[Any, Any], RowBuilder]
    tokenizer: Any
    options: Any
    epochs: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows built from a chunk of items.

    Attributes:
        items: number of items.
        rows: those of each epoch of the job.
        counts: statistics of the job's first epoch.
    """

    items: int
    rows: list[pa.RecordBatch]
    counts: RowCounts


def schema_of(row: type) -> pa.Schema:
    """Columns of a row class: texts, numbers and lists of tokens."""
    return pa.schema([(column.name, _COLUMNS.get(column.type, _TOKENS)) for column in fields(row)])


def make_chunks(items: Iterable[Any], job: RowJob, workers: int | None) -> Iterator[Chunk]:
    """Build rows from items, a chunk at a time and in their order.

    Args:
        items: those of a builder.
        job: builder, tokenizer, options and epochs.
        workers: processes; None takes one for each core, and only this one for up to 2,048 items.

    Raises:
        RunError: a worker died.
    """
    reading = iter(items)
    chunks: Iterator[tuple[Any, ...]] = iter(lambda: tuple(islice(reading, CHUNK)), ())
    count = usable_workers(workers)
    if workers is None:
        few = list(islice(chunks, _FEW_CHUNKS))
        count = count if len(few) == _FEW_CHUNKS else 1
        chunks = chain(few, chunks)
    if count == 1 or not _can_unpickle(job.tokenizer):
        builder = job.builder(job.tokenizer, job.options)
        return (_chunk_of(builder, job.epochs, chunk) for chunk in chunks)
    return _in_processes(chunks, job, count)


def _in_processes(chunks: Iterator[tuple[Any, ...]], job: RowJob, workers: int) -> Iterator[Chunk]:
    """Chunks built by workers, each with at most two waiting."""
    pending: deque[Future[Chunk]] = deque()
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_start, initargs=(job,))
    try:
        for chunk in chunks:
            with _hidden_main():
                pending.append(pool.submit(_build, chunk))
            if len(pending) > 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise RunError(
            "a process that builds training rows died, perhaps out of memory; dataset_num_proc: 1 builds them in one "
            "process"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _chunk_of(builder: RowBuilder, epochs: Sequence[int], items: Sequence[Any]) -> Chunk:
    """Rows of some items for each epoch; an item's epochs follow each other, as they repeat its prompts."""
    rows: list[list[Any]] = [[] for _ in epochs]
    counts = builder.counts = RowCounts()
    for item in items:
        for epoch, built in zip(epochs, rows, strict=True):
            builder.counts = counts if epoch == epochs[0] else RowCounts()
            row = builder.build(item, epoch)
            if row is not None:
                built.append(row)
    return Chunk(items=len(items), rows=[_batch(builder.row, built) for built in rows], counts=counts)


def _batch(row_class: type, rows: Sequence[Any]) -> pa.RecordBatch:
    schema = schema_of(row_class)
    columns = [pa.array([getattr(row, column.name) for row in rows], column.type) for column in schema]
    return pa.record_batch(columns, schema=schema)


_worker: tuple[RowBuilder, Sequence[int]] | None = None
"""State of a started worker."""


def _start(job: RowJob) -> None:
    """Prepare a worker; it ignores Ctrl-C, on which the reading process ends its workers."""
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads would compete for the workers' cores
    _worker = job.builder(job.tokenizer, job.options), job.epochs


def _exit_with_parent() -> None:
    """Exit when the parent is killed; the worker would otherwise wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _build(items: Sequence[Any]) -> Chunk:
    assert _worker is not None
    return _chunk_of(*_worker, items)


def _can_unpickle(tokenizer: Any) -> bool:
    """True if another process can load the tokenizer's class; code that came with a model cannot be imported there."""
    return not type(tokenizer).__module__.startswith("transformers_modules")


@contextlib.contextmanager
def _hidden_main() -> Iterator[None]:
    """Start workers without this process's script: importing it again takes seconds, and not every script allows it.

    Python's `multiprocessing` makes a worker import `__main__` when it starts.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
