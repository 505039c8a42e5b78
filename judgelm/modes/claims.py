"""Claims of an answer, and passages of its context."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from judgelm.errors import ConfigError

_TEXT_KEYS = ("text", "content", "page_content", "passage", "chunk", "document", "body")
_ID_KEYS = ("id", "chunk_id", "doc_id", "document_id", "source", "title")
_FORM = '"...", ["...", "..."], or [{"id": "a", "text": "..."}]'
_MIN_SPLIT = 2


class Claim(NamedTuple):
    """A part of an answer that is checked by itself.

    Attributes:
        text: the claim as in the answer, without list markers.
        lead: text that the claim depends on: the header of a table, or the sentence that introduces a list.
    """

    text: str
    lead: str = ""

    @property
    def in_full(self) -> str:
        """The claim after its lead."""
        separator = "\n" if self.lead.startswith("|") else " "
        return f"{self.lead}{separator}{self.text}" if self.lead else self.text


class Passage(NamedTuple):
    """A document or a retrieved chunk."""

    id: str
    text: str


@lru_cache(maxsize=1024)
def split_claims(answer: str, language: str = "en") -> tuple[Claim, ...]:
    """Split an answer into sentences, rows of tables, and blocks of code.

    Headings, rules, and text without letters and digits are not claims. A sentence that ends with a colon before a list
    is not a claim, but the lead of each item.

    Args:
        answer: plain text or Markdown.
        language: ISO 639-1 code, for the rules of abbreviations.
    """
    from markdown_it import MarkdownIt

    claims: list[Claim] = []
    lead, header, depth = "", "", 0
    lines = answer.splitlines()
    tokens = MarkdownIt("commonmark").enable("table").parse(answer)
    for index, token in enumerate(tokens):
        depth += token.nesting if token.type.endswith(("_list_open", "_list_close")) else 0
        if depth == 0 and not token.type.endswith("_list_close") and token.type not in ("paragraph_open", "inline"):
            lead = lead if token.type == "paragraph_close" else ""
        if token.type in ("fence", "code_block"):
            claims.append(Claim(token.content.strip("\n")))
        elif token.type == "tr_open" and token.map is not None:
            row = lines[token.map[0]].strip()
            if header:
                claims.append(Claim(row, header))
            header = header or row
        elif token.type == "table_close":
            header = ""
        elif token.type in ("inline", "html_block") and not header and tokens[index - 1].type != "heading_open":
            sentences = list(_sentences(token.content, language))
            opens_list = tokens[index + 2 : index + 3] and tokens[index + 2].type.endswith("_list_open")
            next_lead = sentences.pop() if opens_list and sentences and sentences[-1].endswith((":", "：")) else ""
            claims += [Claim(sentence, lead if depth else "") for sentence in sentences]
            lead = next_lead or (lead if depth else "")
    return tuple(claim for claim in claims if any(map(str.isalnum, claim.text)))


def _sentences(text: str, language: str) -> Iterator[str]:
    from sentencex import segment

    return (sentence.strip() for sentence in segment(language, text) if sentence.strip())


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
        paragraphs = list(_sentences(text, "en"))
    for number, paragraph in enumerate(paragraphs, 1):
        yield Passage(str(number), paragraph.strip())


def halves(passages: Sequence[Passage]) -> tuple[tuple[Passage, ...], tuple[Passage, ...]] | None:
    """Split a context that is too long into two parts; None if it is a single sentence."""
    if len(passages) == 1:
        name, text = passages[0]
        pieces = text.split("\n\n") if text.strip().count("\n\n") else list(_sentences(text, "en"))
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
