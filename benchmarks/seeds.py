"""Sample seed questions with reference answers from Alpaca-GPT4, Dolly-15K, GPT4All-LAION, and ShareGPT.

JudgeLM's data set starts from 105K questions from four sources; section 3.1 does not state their shares. The files are
read twice, so that only hashes are kept in memory, at most about 350 bytes per distinct question.

Source: JudgeLM, section 3.1.
"""

import hashlib
import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import Reject, Row, convert_or_reject
from judgelm.data.sources.dialogues import message_list, read_turns
from judgelm.errors import ConfigError, InputError

SeedKind = Literal["alpaca", "dolly", "gpt4all", "sharegpt"]

_NEEDS: Mapping[SeedKind, tuple[str, ...]] = {
    "sharegpt": ("conversations",),
    "dolly": ("instruction", "context", "response"),
    "gpt4all": ("prompt", "response"),
    "alpaca": ("instruction", "output"),
}
_KNOWN = "; ".join(f"{kind} ({', '.join(needs)})" for kind, needs in _NEEDS.items())
# FastChat cuts long conversations and names each part by its start position: "dsOTKpn_0", "dsOTKpn_14".
_LATER_PART = re.compile(r"[A-Za-z0-9]{7}_[1-9]\d*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """One question to make judge samples from.

    Attributes:
        id: hash of the normalised question, which is the same in every file.
        reference: the source's answer, or None if it is blank.
        source: the name of the source.
        category: Dolly category or GPT4All source, otherwise None.
        origin: `file:line`.
    """

    id: str
    question: str
    reference: str | None
    source: str
    category: str | None
    origin: str


def read_seeds(path: str, kind: SeedKind | None = None, *, source: str | None = None) -> Iterator[Seed | Reject]:
    """Stream the seeds of one file; unusable rows become rejects.

    Args:
        path: JSON Lines, a JSON list, CSV, TSV, or Parquet.
        kind: None to recognise it by the fields of the first suitable row.
        source: the seeds' `source`, or None to use the kind.

    Raises:
        ConfigError: The kind is unknown.
        InputError: The file cannot be read, or has no usable rows.
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
    """Return a seed file's kind, from the field names of its first good row.

    Raises:
        InputError: No kind fits.
    """
    for kind, needs in _NEEDS.items():
        if all(name in row.data for name in needs):
            return kind
    fields = ", ".join(row.data) or "none"
    raise row.error(f"fields of no seed source: {fields}. Known are {_KNOWN}; rename the fields")


def _seed(row: Row, kind: SeedKind, source: str) -> Seed:
    name, category = "instruction", None
    if kind == "sharegpt":
        name, (question, reference) = "conversations", _first_turns(row)
    elif kind == "gpt4all":
        name, question, reference = "prompt", _text(row, "prompt", kind), _text(row, "response", kind)
        category = row.optional_text("source")
    else:
        context, answer = ("context", "response") if kind == "dolly" else ("input", "output")
        question, reference = _text(row, "instruction", kind), _text(row, answer, kind)
        more = row.optional_text(context)
        question = f"{question}\n\n{more}" if more and more.strip() else question
        category = row.optional_text("category")
    if not question.strip():
        raise row.field_error(name, "the question is blank; leave the row out")
    return Seed(
        id=f"s-{digest(normalised(question)):016x}",
        question=question,
        reference=reference if reference and reference.strip() else None,
        source=source,
        category=category or None,
        origin=f"{row.file}:{row.line}",
    )


def _text(row: Row, name: str, kind: SeedKind) -> str:
    return row.text(name, ", ".join(_NEEDS[kind]))


def _first_turns(row: Row) -> tuple[str, str | None]:
    """Return the first human turn and its first answer."""
    name = row.data.get("id")
    if isinstance(name, str) and _LATER_PART.fullmatch(name):
        finding = f"{name} is a later part of a conversation, whose first question needs what came before"
        raise row.field_error("id", f"{finding}; leave the row out")
    messages = message_list(row.data.get("conversations"))
    if not messages:
        raise row.field_error("conversations", "expected a list of turns with from and value; leave the row out")
    opening = row.with_data({"conversations": messages[:3]})
    turns = read_turns(opening, "conversations", alone="user", needs="conversations")
    if turns[0].role == "system":
        turns = turns[1:]
    if not turns or turns[0].role != "user":
        raise row.field_error("conversations", "the first turn is not the human's; leave the row out")
    return turns[0].text, turns[1].text if len(turns) > 1 and turns[1].role == "assistant" else None


def normalised(question: str) -> str:
    """Normalise a question: NFKC, lower case, and single spaces."""
    return " ".join(unicodedata.normalize("NFKC", question).casefold().split())


def digest(text: str) -> int:
    """Return a 64-bit hash; collisions among a million questions are negligible and count as duplicates."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedSource:
    """The files of one source. `categories` limits rows to these (for GPT4All: LAION); if empty, all are kept.

    If `kind` is None, it is recognised by each file's fields.
    """

    paths: tuple[str, ...]
    kind: SeedKind | None = None
    categories: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class SourceCount:
    """Row counts of a source; `read` is the sum of the next four.

    Attributes:
        rejected: unusable rows.
        other_category: rows of other categories.
        duplicates: rows whose normalised question was kept from another row or source.
        available: distinct questions to choose from.
        requested: number of seeds by the mix.
        taken: number of chosen seeds; differs from `requested` only after redistribution.
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
    """The chosen seeds. Iterating reads the files again, in source and row order."""

    counts: Mapping[str, SourceCount]
    _sources: Mapping[str, SeedSource] = field(repr=False)
    _chosen: Mapping[int, tuple[int, int]] = field(repr=False)

    def __iter__(self) -> Iterator[Seed]:
        yielded = set[int]()
        for source_index, (name, source) in enumerate(self._sources.items()):
            for seed in _of_source(name, source):
                if isinstance(seed, Seed) and _wanted(source, seed):
                    question = _question_hash(seed)
                    if question not in yielded and self._chosen.get(question) == (_rank(seed), source_index):
                        yielded.add(question)
                        yield seed
        if len(yielded) != len(self._chosen):
            finding = f"{len(self._chosen) - len(yielded)} of the chosen seeds are gone from the files"
            raise InputError(f"{', '.join(self._sources)}: {finding}; leave them alone until all seeds are read")


def sample_seeds(
    sources: Mapping[str, SeedSource],
    mix: Mapping[str, float],
    size: int,
    seed: int,
    *,
    redistribute: bool = False,
    on_reject: Callable[[Reject], None] | None = None,
) -> SeedSample:
    """Choose `size` seeds with distinct questions, with a share from each source.

    Among rows with the same question, the row with the smallest hash of source, question, and reference is kept. In
    each source, the smallest hashes of `seed` and ID are chosen. The choice does not depend on file and row order, and
    a larger size extends the choice of a smaller size.

    Args:
        sources: files by source name.
        mix: share of each source, summing to 1. Rounded by largest remainders so that the seeds sum to `size`.
        size: number of seeds.
        seed: random seed.
        redistribute: if a source is too small, take all of it, and the rest from the others by their shares.
        on_reject: called with each unusable row; by default they are only counted.

    Raises:
        ConfigError: Sources and mix do not match, the size is not positive, or a path is standard input.
        InputError: A source has too few questions, or a file cannot be read.
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
    sources: Mapping[str, SeedSource], counts: Mapping[str, SourceCount], on_reject: Callable[[Reject], None] | None
) -> dict[int, tuple[int, int]]:
    """Return the rank and source of the row kept for each question, by hash."""
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
    """Return a row's rank among rows with the same question; the smallest is kept."""
    return digest(f"{seed.source}\0{seed.question}\0{seed.reference or ''}")


def _key(seed: int, question: int) -> int:
    return digest(f"{seed}\0{question:016x}")


def check_mix(sources: Collection[str], mix: Mapping[str, float], size: int) -> None:
    """Check that sources, mix, and size match.

    Raises:
        ConfigError: They do not match.
    """
    if size < 1:
        raise ConfigError(f"size {size}: expected at least 1 seed")
    if not sources or set(sources) != set(mix):
        names = f"sources {', '.join(sources) or 'none'} and the shares of {', '.join(mix) or 'none'}"
        raise ConfigError(f"{names} do not fit; give each source one share")
    for name, share in mix.items():
        if not (math.isfinite(share) and share > 0):
            raise ConfigError(f"mix: the share of {name} is {share}; expected more than 0, or leave the source out")
    total = math.fsum(mix.values())
    if abs(total - 1) > 1e-6:
        raise ConfigError(f"mix: the shares sum to {total:g}, expected 1; divide each by {total:g}")


def apportion(size: int, shares: Mapping[str, float]) -> dict[str, int]:
    """Split `size` by the shares, using largest remainders; ties are resolved by name."""
    total = math.fsum(shares.values())
    exact = {name: size * share / total for name, share in shares.items()}
    whole = {name: math.floor(value + 1e-9) for name, value in exact.items()}
    remaining = size - sum(whole.values())
    for name in sorted(exact, key=lambda name: (whole[name] - exact[name], name))[:remaining]:
        whole[name] += 1
    return whole


def redistributed(
    requested: Mapping[str, int], available: Mapping[str, int], shares: Mapping[str, float]
) -> dict[str, int]:
    """Return seeds per source: small sources give all, and the others the rest by their shares.

    Raises:
        InputError: All sources together have too few.
    """
    size = sum(requested.values())
    if sum(available.values()) < size:
        raise InputError(f"size {size}: all sources together have {sum(available.values())} seeds; ask for fewer")
    taken, short = dict(requested), dict[str, int]()
    while any(taken[name] > available[name] for name in taken):
        short |= {name: available[name] for name in taken if taken[name] > available[name]}
        others = {name: share for name, share in shares.items() if name not in short}
        taken = short | apportion(size - sum(short.values()), others) if others else dict(short)
    return taken


def shortage_message(
    requested: Mapping[str, int], available: Mapping[str, int], mix: Mapping[str, float], size: int
) -> str:
    """Return the error message for sources with too few seeds."""
    missing = [
        f"{name}: {requested[name]} asked (share {mix[name]:g}), {available[name]} distinct questions available, "
        f"{requested[name] - available[name]} missing"
        for name in requested
        if requested[name] > available[name]
    ]
    most = min(math.floor(available[name] / mix[name] + 1e-9) for name in requested)
    return (
        f"too few seeds for size {size}. {'; '.join(missing)}. Give these sources more files or smaller shares, "
        f"take a size of about {most}, or let the others fill up (redistribute)"
    )
