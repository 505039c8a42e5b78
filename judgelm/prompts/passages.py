"""Passages of a context: documents or retrieved chunks, as in the rows of mode `grounded`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from judgelm.errors import ConfigError

CONTEXT = "context"
"""Field of a row, and slot of a prompt."""
_TEXT_KEYS = ("text", "content", "page_content", "passage", "chunk", "document", "body")
_ID_KEYS = ("id", "chunk_id", "doc_id", "document_id", "source", "title")
_FORM = '"...", ["...", "..."], or [{"id": "a", "text": "..."}]'
_MIN_SPLIT = 2


class Passage(NamedTuple):
    """A document or a retrieved chunk."""

    id: str
    text: str


def read_passages(value: object, *, split: bool) -> tuple[Passage, ...]:
    """Parse a context: text, a list of texts, or a list of objects with a text and an ID.

    Args:
        value: the context, which can also be JSON text.
        split: split a single text into paragraphs, or else into sentences.

    Raises:
        ConfigError: the context is empty, or has another form.
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        with suppress(ValueError):
            value = json.loads(value)
    if isinstance(value, str) or not isinstance(value, Sequence):
        value = [value]
    passages = [_passage(item, number) for number, item in enumerate(value, 1)]
    passages = [passage for passage in passages if passage.text.strip()]
    if not passages:
        raise ConfigError("the context is empty; remove the row, or fill it in")
    if split and len(passages) == 1:
        return tuple(_paragraphs(passages[0].text))
    return tuple(passages)


def _passage(item: object, number: int) -> Passage:
    if isinstance(item, str):
        return Passage(str(number), item)
    if isinstance(item, Mapping):
        text = next((item[key] for key in _TEXT_KEYS if isinstance(item.get(key), str)), None)
        if text is not None:
            own = item.get("metadata")
            known = {**own, **item} if isinstance(own, Mapping) else item
            name = next((known[key] for key in _ID_KEYS if isinstance(known.get(key), str | int)), number)
            return Passage(str(name), text)
    raise ConfigError(f"expected a context as {_FORM}, got {item!r:.60}")


def _paragraphs(text: str) -> Iterator[Passage]:
    paragraphs = [part for part in text.split("\n\n") if part.strip()]
    if len(paragraphs) == 1:
        paragraphs = list(sentences_of(text, "en"))
    for number, paragraph in enumerate(paragraphs, 1):
        yield Passage(str(number), paragraph.strip())


def halves(passages: Sequence[Passage]) -> tuple[tuple[Passage, ...], tuple[Passage, ...]] | None:
    """Split a context that is too long into two parts; None if it is a single sentence."""
    if len(passages) == 1:
        name, text = passages[0]
        pieces = text.split("\n\n") if text.strip().count("\n\n") else list(sentences_of(text, "en"))
        if len(pieces) < _MIN_SPLIT:
            return None
        joined = "\n\n" if text.strip().count("\n\n") else " "
        middle = _middle([len(piece) for piece in pieces])
        return (Passage(name, joined.join(pieces[:middle])),), (Passage(name, joined.join(pieces[middle:])),)
    middle = _middle([len(passage.text) for passage in passages])
    return tuple(passages[:middle]), tuple(passages[middle:])


def _middle(lengths: Sequence[int]) -> int:
    """Return the place between two pieces at which the total lengths of both sides differ least."""
    sums = [sum(lengths[:place]) for place in range(1, len(lengths))]
    return 1 + min(range(len(sums)), key=lambda place: abs(2 * sums[place] - sum(lengths)))


def sentences_of(text: str, language: str) -> Iterator[str]:
    """Split text into sentences. `language` is an ISO 639-1 code."""
    from sentencex import segment

    return (sentence.strip() for sentence in segment(language, text) if sentence.strip())
