"""Hashes of the texts of a sample as it was read, before anything is sanitized or cut; run files keep them.

The hash of a text is xxh3-64 of its UTF-8 bytes, in 16 hex digits; that of several texts is of their JSON list.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from judgelm.engines.base import ImageError
from judgelm.engines.images import image_bytes
from judgelm.errors import InputError
from judgelm.prompts.conversation import dialogue_of
from judgelm.records import Sample, TextHashes

_CONTEXT = ("context", "options", "pair", "rubric", "anchor", "instruction", "input", "follow_ups")
"""Metadata that modes show beside question and answers."""
EXCHANGED = "the order of the answers"
"""The `difference` between samples with the same answers in another order."""


def text_hashes(sample: Sample) -> TextHashes:
    """The hashes of a sample as it was read; an image that cannot be read has none."""
    turns = sample.metadata.get("turns")
    questions, answers = [sample.question], [[answer] for answer in sample.answers]
    if isinstance(turns, list) and len(turns) > 1:
        with suppress(InputError):  # else no dialogue, whatever else stands there
            dialogue = dialogue_of(sample)
            questions = [turn.question for turn in dialogue]
            answers = [list(side) for side in zip(*(turn.answers for turn in dialogue), strict=True)]
    shown = {name: sample.metadata[name] for name in _CONTEXT if sample.metadata.get(name) is not None}
    if sample.reference is not None:
        shown["reference"] = sample.reference
    return TextHashes(
        question=_hash(questions),
        answers=tuple(_hash(texts) for texts in answers),
        images=_hash_of_images(sample.images),
        context=_hash([json.dumps(shown, sort_keys=True, default=str)]) if shown else None,
    )


def digest_of(hashes: TextHashes) -> int:
    """All hashes of a sample in one number of 64 bits, never 0."""
    parts = (hashes.question, *hashes.answers, str(hashes.images), str(hashes.context))
    return xxh3_64_intdigest(" ".join(parts).encode(errors="surrogatepass")) or 1


def difference(judged: TextHashes, other: TextHashes) -> str:
    """The part in which other texts differ from those judged; empty where they are the same.

    Images are compared where both have some; what is shown beside question and answers is not.
    """
    if judged.question != other.question:
        return "the question"
    if None not in (judged.images, other.images) and judged.images != other.images:
        return "an image"
    if judged.answers == other.answers:
        return ""
    if len(judged.answers) != len(other.answers):
        return "the number of answers"
    if sorted(judged.answers) == sorted(other.answers):
        return EXCHANGED
    pairs = zip(judged.answers, other.answers, strict=True)
    return f"answer {next(index for index, (first, second) in enumerate(pairs, 1) if first != second)}"


def _hash(texts: Sequence[str]) -> str:
    text = texts[0] if len(texts) == 1 else json.dumps(list(texts))
    return xxh3_64_hexdigest(text.encode(errors="surrogatepass"))


def _hash_of_images(sources: Sequence[str]) -> str | None:
    hashes = [_hash_of_image(source) for source in sources]
    known = [image for image in hashes if image is not None]
    return _hash(known) if known and len(known) == len(hashes) else None


def _hash_of_image(source: str) -> str | None:
    """Of the bytes of a file or a `data:` URL, of a URL's text; None where the image cannot be read."""
    if source.startswith(("http://", "https://")):
        return _hash([source])
    try:
        if source.startswith("data:"):
            return xxh3_64_hexdigest(image_bytes(source))
        path = Path(source)
        if not path.is_file():
            return None
        state = path.stat()
        return _hash_of_file(source, state.st_mtime_ns, state.st_size)
    except (OSError, ValueError, ImageError):
        return None


@lru_cache(maxsize=256)
def _hash_of_file(source: str, mtime_ns: int, size: int) -> str:
    return xxh3_64_hexdigest(image_bytes(source))
