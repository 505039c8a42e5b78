"""Find exact and near duplicates of rows, texts, and questions.

*Exact* duplicates are equal after normalisation. *Near* duplicates are texts for which the estimated Jaccard similarity
of their word n-grams (shingles) reaches a threshold. MinHash estimates the similarity s from 128 permutations, with a
standard error of sqrt(s * (1 - s) / 128), or 0.027 at s = 0.9. A pair at the threshold is found with probability 0.95.

Source: Broder, On the Resemblance and Containment of Documents (1997); Li, Koenig, b-Bit Minwise Hashing (2010).
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest, xxh3_128_digest, xxh32_intdigest

from judgelm.errors import ConfigError

PERMUTATIONS = 128
BANDS = 8

_FOUND_AT_THRESHOLD = 0.95
_NEIGHBOURS = 64
_CHUNK = 100_000
_CHANCE = 1 / 256
_MIXER = 1_099_511_628_211

_PUNCTUATION = str.maketrans(dict.fromkeys(";!?\"'`()[]{}*_‘’“”„«»‹›–—…¿¡、。，；：？！（）「」『』", " "))
_NOT_IN_NUMBERS = re.compile(r"[-.,:](?!\d)")


def normalised(text: str) -> str:
    """Normalise a text: apply NFC, fold case, remove punctuation, and collapse white space.

    Symbols are kept, as are `-`, `.`, `,`, and `:` before a digit: 5 and -5 are different, but `!x` equals `x`.
    """
    folded = unicodedata.normalize("NFC", text).casefold()
    return " ".join(_NOT_IN_NUMBERS.sub(" ", folded).translate(_PUNCTUATION).split()) or folded.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """The earlier row that a row duplicates; `similarity` is the lowest estimate among its texts, or 1 if exact."""

    kind: Literal["exact", "near"]
    of: str
    similarity: float


class _Text(NamedTuple):
    digest: bytes
    sketch: NDArray[np.uint32] | None


class _Sketcher:
    """Computes digests and sketches; `width` is the number of sketch bytes per band."""

    def __init__(self, threshold: float, shingle: int, min_words: int) -> None:
        from datasketch import MinHash  # imports scipy, which batch runs do not need

        if not 0.7 <= threshold <= 1:
            raise ConfigError(f"threshold {threshold:g}: expected a value from 0.7 to 1; 1 finds only exact duplicates")
        if not 1 <= shingle <= min_words:
            raise ConfigError(f"shingle {shingle}, min_words {min_words}: expected 1 <= shingle <= min_words")
        self.threshold = threshold
        widest = PERMUTATIONS // BANDS
        least_share = 1 - (1 - _FOUND_AT_THRESHOLD) ** (1 / BANDS)  # per band, for 0.95 over all bands
        self.width = widest if threshold == 1 else min(widest, int(math.log(least_share) / math.log(threshold)))
        self._shingle = shingle
        self._least_words = min_words
        self._minhash = MinHash(num_perm=PERMUTATIONS, seed=1, hashfunc=xxh32_intdigest)

    def text(self, text: str) -> _Text:
        plain = normalised(text).encode()
        return _Text(xxh3_128_digest(plain), self.sketch(plain))

    def sketch(self, plain: bytes) -> NDArray[np.uint32] | None:
        words = plain.split(b" ")
        if self.threshold == 1 or len(words) < self._least_words:
            return None
        self._minhash.clear()
        self._minhash.update_batch(map(b" ".join, zip(*(words[i:] for i in range(self._shingle)), strict=False)))
        sketch: NDArray[np.uint32] = self._minhash.hashvalues
        return sketch

    def bands(self, sketch: NDArray[np.uint32] | None) -> list[bytes]:
        if sketch is None:
            return []
        packed = _low_bytes(sketch)
        return [bytes((band,)) + packed[band * self.width : (band + 1) * self.width] for band in range(BANDS)]


def _similarity(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.float64]:
    agreeing = np.count_nonzero(first == second, axis=-1) / PERMUTATIONS
    similarity: NDArray[np.float64] = np.maximum(0.0, (agreeing - _CHANCE) / (1 - _CHANCE))
    return similarity


class Duplicates:
    """Finds rows in a stream that duplicate an earlier row.

    Two rows are duplicates if their questions match and both answers match, in either order. For each band, a row is
    compared only with the first earlier row that shares the band. The time per row is therefore constant, but some near
    duplicates among thousands of similar rows are missed. Memory: about 2 KB per row.
    """

    def __init__(self, *, threshold: float = 0.9, shingle: int = 3, min_words: int = 10) -> None:
        """Create an empty index.

        Args:
            threshold: minimum similarity of each of the three texts, in [0.7, 1]; 1 finds only exact duplicates.
            shingle: number of words per shingle.
            min_words: texts with fewer words (after normalisation) must be equal.
        """
        self._sketcher = _Sketcher(threshold, shingle, min_words)
        self._ids: list[str] = []
        self._texts: list[tuple[bytes, ...]] = []
        self._exact: dict[int, int] = {}
        self._bands: dict[bytes, int] = {}

    def seen(self, row_id: str, question: str, answers: tuple[str, str]) -> Duplicate | None:
        """Return the earlier row that this row duplicates; if there is none, store the row."""
        texts = [self._sketcher.text(text) for text in (question, *answers)]
        key = xxh3_64_intdigest(texts[0].digest + b"".join(sorted(text.digest for text in texts[1:])))
        if (same := self._exact.get(key)) is not None:
            return Duplicate(kind="exact", of=self._ids[same], similarity=1.0)
        packed = tuple(digest + (b"" if sketch is None else _low_bytes(sketch)) for digest, sketch in texts)
        sketches = [sketch for _, sketch in texts if sketch is not None]
        bands = self._sketcher.bands(np.minimum.reduce(sketches) if sketches else None)
        sharing = {self._bands[band] for band in bands if band in self._bands}
        nearest = max(((_row_similarity(packed, self._texts[row]), -row) for row in sharing), default=(0.0, 0))
        if nearest[0] >= self._sketcher.threshold:
            return Duplicate(kind="near", of=self._ids[-nearest[1]], similarity=nearest[0])
        self._exact[key] = len(self._ids)
        for band in bands:
            self._bands.setdefault(band, len(self._ids))
        self._ids.append(row_id)
        self._texts.append(packed if bands else ())  # rows without bands are only compared exactly, by key
        return None


class TextIndex:
    """Finds exact and near duplicates of a text among the texts added. Memory: about 0.8 KB per text."""

    def __init__(self, *, threshold: float = 0.7, shingle: int = 2, min_words: int = 10) -> None:
        self._sketcher = _Sketcher(threshold, shingle, min_words)
        self._names: list[str] = []
        self._sketches: list[bytes] = []
        self._exact: dict[bytes, int] = {}
        self._bands: dict[bytes, list[int]] = {}

    def add(self, name: str, text: str) -> None:
        """Add a text under a name. If equal texts are added, the first name is kept."""
        digest, sketch = self._sketcher.text(text)
        if digest in self._exact:
            return
        index = self._exact[digest] = len(self._names)
        self._names.append(name)
        self._sketches.append(b"" if sketch is None else _low_bytes(sketch))
        for band in self._sketcher.bands(sketch):
            sharing = self._bands.setdefault(band, [])
            if len(sharing) < _NEIGHBOURS:
                sharing.append(index)

    def find(self, text: str) -> Duplicate | None:
        """Return the exact duplicate, or else the most similar text above the threshold."""
        digest, sketch = self._sketcher.text(text)
        if (same := self._exact.get(digest)) is not None:
            return Duplicate(kind="exact", of=self._names[same], similarity=1.0)
        if sketch is None:
            return None
        packed = np.frombuffer(_low_bytes(sketch), np.uint8)
        sharing = {index for band in self._sketcher.bands(sketch) for index in self._bands.get(band, ())}
        near = ((float(_similarity(packed, np.frombuffer(self._sketches[i], np.uint8))), -i) for i in sharing)
        similarity, negated = max(near, default=(0.0, 0))
        if similarity < self._sketcher.threshold:
            return None
        return Duplicate(kind="near", of=self._names[-negated], similarity=similarity)


def _low_bytes(sketch: NDArray[np.uint32]) -> bytes:
    return sketch.astype(np.uint8).tobytes()


def _row_similarity(row: tuple[bytes, ...], other: tuple[bytes, ...]) -> float:
    question, first, second = row
    as_is = min(_text_similarity(first, other[1]), _text_similarity(second, other[2]))
    swapped = min(_text_similarity(first, other[2]), _text_similarity(second, other[1]))
    return min(_text_similarity(question, other[0]), max(as_is, swapped))


def _text_similarity(first: bytes, second: bytes) -> float:
    if first[:16] == second[:16]:
        return 1.0
    if len(first) == 16 or len(second) == 16:
        return 0.0
    return float(_similarity(np.frombuffer(first, np.uint8, offset=16), np.frombuffer(second, np.uint8, offset=16)))


class QuestionGroups:
    """Groups questions that are exact or near duplicates, directly or through other questions.

    Add all questions before calling `group`; their order does not matter. A chain of near duplicates forms one group,
    even if its first and last questions differ. Memory: about 0.8 KB per distinct question.

    If more than 64 questions share a band, only questions within 64 positions of each other are compared. All other
    questions are grouped through these.
    """

    def __init__(self, *, threshold: float = 0.7, shingle: int = 2, min_words: int = 10) -> None:
        self._sketcher = _Sketcher(threshold, shingle, min_words)
        self._sketches: dict[bytes, bytes] = {}
        self._keys: dict[bytes, bytes] | None = None

    def add(self, question: str) -> bytes:
        """Add a question and return its digest."""
        plain = normalised(question).encode()
        digest = xxh3_128_digest(plain)
        if digest not in self._sketches:
            sketch = self._sketcher.sketch(plain)
            self._sketches[digest] = b"" if sketch is None else _low_bytes(sketch)
            self._keys = None
        return digest

    def group(self, question: str | bytes) -> str:
        """Return the group key of a question or digest: the hex digest of the group's smallest member."""
        digest = question if isinstance(question, bytes) else xxh3_128_digest(normalised(question).encode())
        key = self._grouped().get(digest)
        if key is None:
            raise ValueError(f"question {question[:60]!r} was not added; add all questions before calling group()")
        return key.hex()

    def sizes(self) -> dict[str, int]:
        """Return the number of distinct questions per group, largest group first."""
        return {key.hex(): count for key, count in sorted(Counter(self._grouped().values()).items(), key=_largest)}

    def _grouped(self) -> dict[bytes, bytes]:
        if self._keys is None:
            digests = sorted(self._sketches)
            long = [digest for digest in digests if self._sketches[digest]]
            joined = b"".join(self._sketches[digest] for digest in long)
            labels = _near_groups(np.frombuffer(joined, np.uint8).reshape(-1, PERMUTATIONS), self._sketcher)
            least: dict[int, bytes] = {}
            self._keys = {digest: digest for digest in digests}
            for digest, label in zip(long, labels.tolist(), strict=True):
                self._keys[digest] = least.setdefault(label, digest)
        return self._keys


def _largest(group: tuple[bytes, int]) -> tuple[int, bytes]:
    return -group[1], group[0]


def _near_groups(sketches: NDArray[np.uint8], sketcher: _Sketcher) -> NDArray[np.intp]:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    labels = np.arange(len(sketches))
    for left, right in _sharing_a_band(sketches, sketcher.width):
        apart = labels[left] != labels[right]
        left, right = left[apart], right[apart]
        near = _similarity(sketches[left], sketches[right]) >= sketcher.threshold
        if near.any():
            edges = (np.ones(np.count_nonzero(near), np.bool_), (labels[left[near]], labels[right[near]]))
            labels = connected_components(coo_array(edges, shape=(len(labels),) * 2), directed=False)[1][labels]
    return labels


def _sharing_a_band(sketches: NDArray[np.uint8], width: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    weights = np.array([pow(_MIXER, power, 1 << 64) for power in range(width)], dtype=np.uint64)
    for band in range(BANDS):
        keys = sketches[:, band * width : (band + 1) * width].astype(np.uint64) @ weights
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        for distance in range(1, _NEIGHBOURS + 1):
            places = np.flatnonzero(keys[:-distance] == keys[distance:])
            if not len(places):
                break
            for start in range(0, len(places), _CHUNK):
                chunk = places[start : start + _CHUNK]
                yield order[chunk], order[chunk + distance]
