"""Seed questions with reference answers, from files that the user has: read, deduplicated and sampled to a stated mix.

JudgeLM's data set starts from 105K questions of Alpaca-GPT4, Dolly-15K, GPT4All-LAION and ShareGPT (section 3.1, which
does not say how many of each). No texts are held here: the files are read twice, and between the readings there are
only hashes, at most about 350 bytes for each distinct question.
"""

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from judgelm.data.formats.dialogues import message_list, read_turns
from judgelm.data.readers.fields import field_error, optional_text, row_error, text_field
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rejects import convert_or_reject
from judgelm.data.readers.rows import Reject, Row
from judgelm.data.seeds.mix import apportion, check_mix, redistributed, shortage_message
from judgelm.errors import ConfigError, InputError

SeedKind = Literal["alpaca", "dolly", "gpt4all", "sharegpt"]

_NEEDS: Mapping[SeedKind, tuple[str, ...]] = {
    "sharegpt": ("conversations",),
    "dolly": ("instruction", "context", "response"),
    "gpt4all": ("prompt", "response"),
    "alpaca": ("instruction", "output"),
}
_KNOWN = "; ".join(f"{kind} ({', '.join(needs)})" for kind, needs in _NEEDS.items())
# FastChat cuts long conversations and names each part by the place where it begins: "dsOTKpn_0", "dsOTKpn_14".
_LATER_PART = re.compile(r"[A-Za-z0-9]{7}_[1-9]\d*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """One question to make judge samples from.

    Attributes:
        id: a hash of the normalised question, so the same question has the same id in every file.
        reference: the source's own answer; None where that is blank.
        source: the name of the source.
        category: Dolly's category, GPT4All's source; None elsewhere.
        origin: `file:line`.
    """

    id: str
    question: str
    reference: str | None
    source: str
    category: str | None
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedSource:
    """The files of one source. `categories` keeps the rows of these alone (GPT4All: those from LAION); empty keeps all.

    `kind` None is recognised by each file's fields.
    """

    paths: tuple[str, ...]
    kind: SeedKind | None = None
    categories: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class SourceCount:
    """What became of a source's rows: `read` is the sum of the four after it.

    Attributes:
        rejected: rows that cannot be used.
        other_category: rows of categories that were not asked for.
        duplicates: rows whose normalised question another row has, in this source or, kept there, in another.
        available: distinct questions to choose from.
        requested: seeds by the mix.
        taken: seeds chosen; differs from `requested` only by redistribution.
    """

    read: int = 0
    rejected: int = 0
    other_category: int = 0
    duplicates: int = 0
    available: int = 0
    requested: int = 0
    taken: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedSample:
    """What was chosen. Iterating reads the files again and gives the seeds in the order of sources and rows."""

    counts: Mapping[str, SourceCount]
    _sources: Mapping[str, SeedSource] = field(repr=False)
    _chosen: Mapping[int, tuple[int, int]] = field(repr=False)

    def __iter__(self) -> Iterator[Seed]:
        given = set[int]()
        for source_index, (name, source) in enumerate(self._sources.items()):
            for seed in _of_source(name, source):
                if isinstance(seed, Seed) and _wanted(source, seed):
                    question = _question_hash(seed)
                    if question not in given and self._chosen.get(question) == (_rank(seed), source_index):
                        given.add(question)
                        yield seed
        if len(given) != len(self._chosen):
            finding = f"{len(self._chosen) - len(given)} of the chosen seeds are gone from the files"
            raise InputError(f"{', '.join(self._sources)}: {finding}; leave them alone until all seeds are read")


def read_seeds(path: str, kind: SeedKind | None = None, *, source: str | None = None) -> Iterator[Seed | Reject]:
    """Stream the seeds of one file; rows that cannot be used come as rejects.

    Args:
        path: JSON lines, a JSON list, CSV, TSV or Parquet.
        kind: None is recognised by the fields of the first row that is of one.
        source: the seeds' `source`; None takes the kind.

    Raises:
        ConfigError: there is no such kind.
        InputError: the file cannot be read, or none of its rows can be used, such as rows of no kind.
    """
    if kind is not None and kind not in _NEEDS:
        raise ConfigError(f"seed kind {kind!r} does not exist; choose one of {', '.join(get_args(SeedKind))}")
    return _read_seeds(path, kind, source)


def _read_seeds(path: str, kind: SeedKind | None, source: str | None) -> Iterator[Seed | Reject]:
    known = kind

    def read(row: Row) -> Seed:
        nonlocal known
        known = known or detect_seed_kind(row)
        return _seed(row, known, source or known)

    expected = _KNOWN if kind is None else ", ".join(_NEEDS[kind])
    yield from convert_or_reject(read_rows(path), read, path=path, expected=expected)


def detect_seed_kind(row: Row) -> SeedKind:
    """The kind of a file of seeds, from the field names of its first good row.

    Raises:
        InputError: no kind fits.
    """
    for kind, needs in _NEEDS.items():
        if all(name in row.data for name in needs):
            return kind
    fields = ", ".join(row.data) or "none"
    raise row_error(row, f"fields of no seed source: {fields}. Known are {_KNOWN}; rename the fields")


def _seed(row: Row, kind: SeedKind, source: str) -> Seed:
    name, category = "instruction", None
    if kind == "sharegpt":
        name, (question, reference) = "conversations", _first_exchange(row)
    elif kind == "gpt4all":
        name, question, reference = "prompt", _text(row, "prompt", kind), _text(row, "response", kind)
        category = optional_text(row, "source")
    else:
        context, answer = ("context", "response") if kind == "dolly" else ("input", "output")
        question, reference = _text(row, "instruction", kind), _text(row, answer, kind)
        more = optional_text(row, context)
        question = f"{question}\n\n{more}" if more and more.strip() else question
        category = optional_text(row, "category")
    if not question.strip():
        raise field_error(row, name, "the question is blank; leave the row out")
    return Seed(
        id=f"s-{_digest(normalised(question)):016x}",
        question=question,
        reference=reference if reference and reference.strip() else None,
        source=source,
        category=category or None,
        origin=f"{row.file}:{row.line}",
    )


def _text(row: Row, name: str, kind: SeedKind) -> str:
    return text_field(row, name, ", ".join(_NEEDS[kind]))


def _first_exchange(row: Row) -> tuple[str, str | None]:
    """The first human turn and the first answer to it."""
    name = row.data.get("id")
    if isinstance(name, str) and _LATER_PART.fullmatch(name):
        finding = f"{name} is a later part of a conversation, whose first question needs what came before"
        raise field_error(row, "id", f"{finding}; leave the row out")
    messages = message_list(row.data.get("conversations"))
    if not messages:
        raise field_error(row, "conversations", "expected a list of turns with from and value; leave the row out")
    opening = Row(row.file, row.line, {"conversations": messages[:3]})
    turns = read_turns(opening, "conversations", alone="user", needs="conversations")
    if turns[0].role == "system":
        turns = turns[1:]
    if not turns or turns[0].role != "user":
        raise field_error(row, "conversations", "the first turn is not the human's; leave the row out")
    return turns[0].text, turns[1].text if len(turns) > 1 and turns[1].role == "assistant" else None


def normalised(question: str) -> str:
    """What makes two questions the same: their text in NFKC and lower case, each run of white space as one space."""
    return " ".join(unicodedata.normalize("NFKC", question).casefold().split())


def sample_seeds(
    sources: Mapping[str, SeedSource],
    mix: Mapping[str, float],
    size: int,
    seed: int,
    *,
    redistribute: bool = False,
    on_reject: Callable[[Reject], None] | None = None,
) -> SeedSample:
    """Choose `size` seeds of distinct questions, from each source its share.

    Of rows with one question that with the smallest hash of source, question and reference is kept. In each source
    those with the smallest hashes of `seed` and id are chosen: the choice does not depend on the order of files and
    rows, a larger size adds to a smaller one's choice, and another seed draws anew.

    Args:
        sources: files by the name of their source.
        mix: share of each source; they sum to 1. Rounded so that the seeds sum to `size` (largest remainders).
        size: how many seeds.
        seed: of the draw.
        redistribute: where a source has too few, take all it has and the rest from the others by their shares.
        on_reject: called with each row that cannot be used; by default they are only counted.

    Raises:
        ConfigError: sources and mix do not fit, the size is not positive, or a path is standard input (read twice).
        InputError: a source has too few questions (says how many are missing), or a file cannot be read.
    """
    check_mix(sources, mix, size)
    if any("-" in source.paths for source in sources.values()):
        raise ConfigError("seeds are read twice, which standard input cannot be; save it to a file first")
    counts = {name: SourceCount() for name in sources}
    distinct = _index(sources, counts, on_reject)
    for _, source_index in distinct.values():
        list(counts.values())[source_index].available += 1
    requested = apportion(size, mix)
    available = {name: count.available for name, count in counts.items()}
    if any(requested[name] > available[name] for name in sources) and not redistribute:
        raise InputError(shortage_message(requested, available, mix, size))
    taken = redistributed(requested, available, mix)
    chosen: dict[int, tuple[int, int]] = {}
    for source_index, (name, count) in enumerate(counts.items()):
        count.duplicates = count.read - count.rejected - count.other_category - count.available
        count.requested, count.taken = requested[name], taken[name]
        own = sorted(
            (_key(seed, question), question) for question, (_, source) in distinct.items() if source == source_index
        )
        chosen.update((question, distinct[question]) for _, question in own[: count.taken])
    return SeedSample(counts=counts, _sources=dict(sources), _chosen=chosen)


def _index(
    sources: Mapping[str, SeedSource],
    counts: Mapping[str, SourceCount],
    on_reject: Callable[[Reject], None] | None,
) -> dict[int, tuple[int, int]]:
    """For each distinct question, by its hash, the rank and the source of the row that is kept."""
    distinct: dict[int, tuple[int, int]] = {}
    for source_index, (name, source) in enumerate(sources.items()):
        count, others = counts[name], set[str]()
        for seed in _of_source(name, source):
            count.read += 1
            if isinstance(seed, Reject):
                count.rejected += 1
                if on_reject is not None:
                    on_reject(seed)
            elif not _wanted(source, seed):
                count.other_category += 1
                others.add(str(seed.category))
            else:
                question, candidate = _question_hash(seed), (_rank(seed), source_index)
                distinct[question] = min(candidate, distinct.get(question, candidate))
        if count.other_category and count.read == count.rejected + count.other_category:
            shown = ", ".join(sorted(others)[:10])
            raise InputError(f"{name}: no row is of {', '.join(source.categories)}; its categories are {shown}")
    return distinct


def _of_source(name: str, source: SeedSource) -> Iterator[Seed | Reject]:
    for path in source.paths:
        yield from read_seeds(path, source.kind, source=name)


def _wanted(source: SeedSource, seed: Seed) -> bool:
    return not source.categories or seed.category in source.categories


def _question_hash(seed: Seed) -> int:
    return int(seed.id.removeprefix("s-"), 16)


def _rank(seed: Seed) -> int:
    """Which of the rows with one question is kept: the one with the smallest."""
    return _digest(f"{seed.source}\0{seed.question}\0{seed.reference or ''}")


def _key(seed: int, question: int) -> int:
    return _digest(f"{seed}\0{question:016x}")


def _digest(text: str) -> int:
    # 64 bits: among a million questions two share a hash once in tens of millions of runs, and count as one.
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
