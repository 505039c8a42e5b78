"""Files of seed questions with reference answers: Alpaca-GPT4, Dolly-15K, GPT4All-LAION and ShareGPT.

Source: JudgeLM, section 3.1.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from judgelm.data.readers.fields import optional_text, text_field
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import Reject, Row, convert_or_reject, field_error, row_error
from judgelm.data.sources.dialogues import message_list, read_turns
from judgelm.errors import ConfigError

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


def read_seeds(path: str, kind: SeedKind | None = None, *, source: str | None = None) -> Iterator[Seed | Reject]:
    """Stream the seeds of one file; rows that cannot be used come as rejects.

    Args:
        path: JSON lines, a JSON list, CSV, TSV or Parquet.
        kind: None is recognised by the fields of the first row that is of one.
        source: the seeds' `source`; None takes the kind.

    Raises:
        ConfigError: the kind is unknown.
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
        name, (question, reference) = "conversations", _first_turns(row)
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
        id=f"s-{digest(normalised(question)):016x}",
        question=question,
        reference=reference if reference and reference.strip() else None,
        source=source,
        category=category or None,
        origin=f"{row.file}:{row.line}",
    )


def _text(row: Row, name: str, kind: SeedKind) -> str:
    return text_field(row, name, ", ".join(_NEEDS[kind]))


def _first_turns(row: Row) -> tuple[str, str | None]:
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
    """The key of equal questions: their text in NFKC and lower case, each run of white space as one space."""
    return " ".join(unicodedata.normalize("NFKC", question).casefold().split())


def digest(text: str) -> int:
    """A hash of 64 bits: among a million questions two share one once in tens of millions of runs, and count as one."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
