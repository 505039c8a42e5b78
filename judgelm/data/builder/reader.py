"""Read the inputs, clean the pairs, remove duplicates, and cache the pairs on disk for later stages."""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from judgelm.data.augmentation import replace_reference
from judgelm.data.builder.balance import PairFacts, pair_facts
from judgelm.data.builder.counts import BuildCounts
from judgelm.data.builder.options import BuildOptions
from judgelm.data.builder.splits import SubsetStratum, stratum
from judgelm.data.duplicates import Duplicates, QuestionGroups
from judgelm.data.labelled_pair import LabelledPair, score_line, scores_of_winner, training_scores
from judgelm.data.labelled_set import read_labelled
from judgelm.data.overlap import ExcludedQuestions
from judgelm.data.readers.rows import Reject
from judgelm.data.samples import no_common_id, read_references
from judgelm.data.sources.layouts import split_review
from judgelm.jsonl import Appender
from judgelm.prompts.catalog import get_template
from judgelm.prompts.truncation import Truncator
from judgelm.records import Label, winner_of

DropReason = Literal[
    "no judgment",
    "winner without scores",
    "scores outside the scale",
    "score line and scores differ",
    "equal answers judged unequal",
    "too long",
    "exact duplicate",
    "near duplicate",
    "question of an excluded file",
    "over max_per_question",
    "left out for balance",
]
WinnerScores = tuple[float, float, float] | None
"""Scores for the winner, the loser, and both answers in a tie, for labels without scores; None drops these labels.

Labels with a preference are kept: trainers compute the scores (`judgelm.data.labelled_pair`).
"""


def clean(
    pair: LabelledPair, options: BuildOptions, winner_scores: WinnerScores, repaired: list[str]
) -> LabelledPair | DropReason:
    """Return the pair with unusable judgments removed, or the reason to drop the pair."""
    notes: list[str] = []
    labels: list[Label | None] = []
    problems: list[DropReason] = []
    for name, label in (("without", pair.plain), ("with", pair.referenced)):
        checked = None if label is None else _checked(label, pair.sample.answers, options, winner_scores, repaired)
        if isinstance(checked, str):
            problems.append(checked)
            notes.append(f"the judgment {name} reference left out: {checked}")
        labels.append(None if isinstance(checked, str) else checked)
    if not any(labels):
        return problems[0] if problems else "no judgment"
    repaired += notes
    return replace(pair, plain=labels[0], referenced=labels[1])


def _checked(
    label: Label, answers: Sequence[str], options: BuildOptions, winner_scores: WinnerScores, repaired: list[str]
) -> Label | DropReason:
    notes = []
    if label.scores is None and winner_scores is not None:
        label = replace(label, scores=scores_of_winner(label.winner, winner_scores))
        notes.append("scores made from the winner")
    elif label.scores is None and label.preference is None:
        return "winner without scores"
    low, high = options.scale
    if label.scores is not None and not all(low <= score <= high for score in label.scores):
        if options.out_of_scale == "drop":
            return "scores outside the scale"
        first, second = (min(max(score, low), high) for score in label.scores)
        label = replace(label, scores=(first, second), winner=winner_of((first, second)))
        notes.append("scores clipped to the scale")
    if label.reason is not None and label.scores is not None:
        written, reason = split_review(label.reason)
        if written is not None and written != label.scores:
            return "score line and scores differ"
        label = replace(label, reason=reason.strip() or None)
    if answers[0] == answers[1] and label.winner != "tie":
        return "equal answers judged unequal"
    repaired += notes
    return label


CHUNK_PAIRS = 512


class PairCache:
    """Stores clean pairs in a file, in chunks of `CHUNK_PAIRS` that begin at `offsets`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offsets: list[int] = []

    def write(self, pairs: Iterable[LabelledPair]) -> Iterator[LabelledPair]:
        """Write pairs, and yield each one."""
        source = iter(pairs)
        with self.path.open("wb") as file:
            while chunk := list(islice(source, CHUNK_PAIRS)):
                self.offsets.append(file.tell())
                pickle.dump(chunk, file, protocol=pickle.HIGHEST_PROTOCOL)
                yield from chunk


def read_chunk(path: Path, offset: int) -> list[LabelledPair]:
    """Read one chunk of a cache."""
    with path.open("rb") as file:
        file.seek(offset)
        pairs: list[LabelledPair] = pickle.load(file)  # safe: the file was written by this run
    return pairs


class LengthFilter:
    """Finds pairs that exceed a token limit, which includes prompt, reply, and end-of-sequence token."""

    def __init__(self, tokens: int, tokenizer: Any, template: str) -> None:
        self._tokens = tokens
        self._tokenizer = tokenizer
        self._truncator = Truncator(tokenizer, tokens)
        self._template = get_template(template)

    def __call__(self, pairs: list[LabelledPair]) -> list[bool]:
        """Return True for each pair with a judgment above the limit."""
        texts, owners = [], []
        for index, pair in enumerate(pairs):
            for label, reference in ((pair.plain, None), (pair.referenced, pair.sample.reference)):
                if label is not None:
                    prompt = self._template.render(pair.sample, (0, 1), reference)
                    reply = f"{score_line(training_scores(label) or ())}\n{label.reason or ''}"
                    texts.append(self._truncator.text(prompt.spans, chat=prompt.chat) + reply)
                    owners.append(index)
        long = [False] * len(pairs)
        encoded = self._tokenizer(texts, add_special_tokens=not self._template.chat, verbose=False)["input_ids"]
        for index, ids in zip(owners, encoded, strict=True):
            long[index] |= len(ids) + 1 > self._tokens
        return long


class PairReader:
    """Reads clean pairs; omitted rows are counted and written to `left_out`.

    Attributes:
        counts: excludes clean pairs, which are counted when they are written.
    """

    def __init__(self, options: BuildOptions, left_out: Appender, length_filter: LengthFilter | None) -> None:
        self.counts = BuildCounts()
        self.groups = QuestionGroups()
        self.questions: list[bytes] = []
        self.strata: list[tuple[str, SubsetStratum]] = []
        self.facts: list[PairFacts] = []
        self._known_strata: dict[SubsetStratum, SubsetStratum] = {}
        self._options = options
        self._left_out = left_out
        self._length_filter = length_filter
        self._duplicates = Duplicates(threshold=options.near_duplicates)
        self._excluded = ExcludedQuestions(options.exclude)
        self._references = {} if options.references is None else read_references(options.references)
        self._references_used = 0

    def pairs(self) -> Iterator[LabelledPair]:
        """Yield the clean pairs in all inputs, in order."""
        unique = self._unique()
        while chunk := list(islice(unique, CHUNK_PAIRS)):
            long = self._length_filter(chunk) if self._length_filter is not None else [False] * len(chunk)
            for pair, is_long in zip(chunk, long, strict=True):
                if is_long:
                    self._drop(pair, "too long", f"more than {self._options.max_tokens} tokens")
                    continue
                self._note(pair)
                yield pair

    def _note(self, pair: LabelledPair) -> None:
        self.questions.append(self.groups.add(pair.sample.question))
        if self._options.balance or self._options.max_per_question:
            self.facts.append(pair_facts(pair, self.questions[-1]))
        if self._options.subsets:
            pair_stratum = stratum(pair.sample.category, pair.winner, pair.sample.answer_models)
            self.strata.append((pair.sample.id, self._known_strata.setdefault(pair_stratum, pair_stratum)))

    def _unique(self) -> Iterator[LabelledPair]:
        for pair in self._clean():
            first, second = pair.sample.answers
            if excluding := self._excluded.find(pair.sample.question):
                self._drop(pair, "question of an excluded file", excluding)
                continue
            characters = len(pair.sample.question) + len(first) + len(second)
            if self._options.max_characters is not None and characters > self._options.max_characters:
                self._drop(pair, "too long", f"{characters} characters")
                continue
            duplicate = self._duplicates.seen(pair.sample.id, pair.sample.question, (first, second))
            if duplicate is None:
                yield pair
            elif duplicate.kind == "exact":
                self._drop(pair, "exact duplicate", f"of {duplicate.of}")
            else:
                self._drop(pair, "near duplicate", f"of {duplicate.of}, similarity {duplicate.similarity:.2f}")

    def _clean(self) -> Iterator[LabelledPair]:
        several = len(self._options.inputs) > 1
        for source in self._options.inputs:
            name = source.source

            def on_reject(reject: Reject, name: str = name) -> None:
                self.counts.read[name] += 1
                self.counts.rejected[name, reject.kind] += 1
                self._left_out.write({"source": name, "file": reject.file, "line": reject.line, "why": reject.reason})

            for pair in read_labelled(source.path, source=name, on_reject=on_reject, reading=source.reading):
                self.counts.read[name] += 1
                prepared = self._prepared(pair, f"{name}/{pair.sample.id}" if several else pair.sample.id)
                repaired: list[str] = []
                cleaned = clean(prepared, self._options, source.winner_scores, repaired)
                for note in repaired:
                    self.counts.repaired[name, note] += 1
                if isinstance(cleaned, LabelledPair):
                    yield cleaned
                else:
                    self._drop(prepared, cleaned, "")
        if self._options.references is not None and not self._references_used:
            raise no_common_id(self._options.references, self.counts.read.total())

    def _prepared(self, pair: LabelledPair, pair_id: str) -> LabelledPair:
        reference = self._references.get(pair.sample.id)
        self._references_used += reference is not None
        if reference is not None and reference != pair.sample.reference:
            self.counts.references["replaced"] += 1
            pair = replace_reference(pair, reference)
        if self._options.reference == "ignore":
            pair = pair.without_reference()
        return pair.with_id(pair_id)

    def _drop(self, pair: LabelledPair, reason: DropReason, more: str) -> None:
        self.drop(pair.source, pair.sample.id, reason, more)

    def drop(self, source: str, pair_id: str, reason: DropReason, more: str = "") -> None:
        """Count a dropped pair and record it in the file of omitted rows."""
        self.counts.dropped[source, reason] += 1
        self._left_out.write({"source": source, "id": pair_id, "why": f"{reason} {more}".strip()})
