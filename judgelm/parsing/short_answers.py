"""Exact match of short answers, with each data set's normalisation.

It stands below modes and metrics, which both need it: a mode asks the judge only where the answers differ, a metric
counts how often they do not. F1 is a metric alone, see `judgelm.metrics.qa`.

A question can have several validated gold answers, any of which will do, and an answer several spans, all of which are
needed; a gold answer is therefore a tuple of spans throughout.

Source: QA-Judge, section 5.2; HotpotQA (Yang et al. 2018), whose rules 2WikiMultiHopQA shares; DROP (Dua et al. 2019),
whose rules Quoref (Dasigi et al. 2019) shares; each as its official evaluation script has it.
"""

import re
import string
import unicodedata
from collections.abc import Sequence
from typing import Literal, get_args

from judgelm.errors import InputError, not_found
from judgelm.records import Sample

QaRules = Literal["hotpotqa", "2wiki", "drop", "quoref", "strict"]
"""The data set whose rules apply; `strict` is ours: as HotpotQA's, but numbers keep sign, point and percent."""

Gold = tuple[str, ...]
"""One gold answer: its spans."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_DROP_BREAKS = re.compile("[ -]")
_GROUPED = re.compile(r"(?<![\d,.])(\d{1,3}(?:,\d{3})+)(?![\d,])")
_AROUND = "\"'`“”‘’()[]{},;:!?."


def check_rules(name: str) -> None:
    """Check that rules of this name exist.

    Raises:
        ConfigError: there are no such rules.
    """
    if name not in get_args(QaRules):
        raise not_found("rules", name, get_args(QaRules))


def golds_of(sample: Sample) -> list[Gold]:
    """The validated answers of a sample, that of `sample.reference` first; none where it has no reference.

    `metadata` has all of them as `references` (texts), and where some have several spans also as `reference_spans`.

    Raises:
        InputError: one of the two is something else.
    """
    if sample.reference is None:
        return []
    spans, texts = sample.metadata.get("reference_spans"), sample.metadata.get("references")
    if spans is not None:
        if not isinstance(spans, list | tuple) or not all(_are_texts(gold) and gold for gold in spans):
            raise InputError(f"sample {sample.id}: reference_spans: expected a list of lists of texts")
        return [tuple(gold) for gold in spans]
    if texts is not None and not _are_texts(texts):
        raise InputError(f"sample {sample.id}: references: expected a list of texts, got {texts!r:.60}")
    others = [(text,) for text in texts if text != sample.reference] if isinstance(texts, list | tuple) else []
    return [(sample.reference,), *others]


def _are_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)


def exact_match(predicted: str, golds: Sequence[Gold], rules: QaRules) -> bool:
    """True if an answer of one span is, once normalised, one of the gold answers.

    HotpotQA's rules know no spans: a gold answer of several is compared as one text, joined by blanks. DROP's and
    Quoref's pass over a gold answer whose first span is blank, as the original code does.

    Raises:
        ValueError: no gold answer, or one without a span: a match with nothing is undefined, not false.
        ConfigError: there are no such rules.
    """
    check_rules(rules)
    if not golds or not all(golds):
        raise ValueError("exact match: a question without a gold answer; a match with nothing is undefined")
    if rules in ("drop", "quoref"):
        return any(drop_spans_match([predicted], gold) for gold in golds if gold[0].strip())
    normalise = strictly_normalised if rules == "strict" else hotpot_normalised
    return any(normalise(predicted) == normalise(" ".join(gold)) for gold in golds)


def hotpot_normalised(text: str) -> str:
    """Lower case, without ASCII punctuation and the articles a, an, the; blanks squeezed.

    A point and a sign are punctuation too, so `93.5%` and `93.5` are alike, but so are `2.5`, `25` and `-25`: see
    `strictly_normalised`.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def strictly_normalised(text: str) -> str:
    """Like `hotpot_normalised`, but a word with a digit in it keeps its sign, point, percent and currency.

    `-5` is not `5`, `2.5` is not `25`, `93.5%` is not `93.5`; `1,000` is `1000`, and Unicode compositions count as one
    letter. This is our own rule, for those who want no false match to keep the judge from being asked.
    """
    words = _GROUPED.sub(lambda match: match[1].replace(",", ""), unicodedata.normalize("NFC", text).lower()).split()
    return " ".join(filter(None, map(_strict_word, words)))


def drop_normalised(text: str) -> str:
    """Words between blanks and hyphens, in lower case, numbers as floats, else without punctuation and articles.

    `1,000` becomes `1000.0` and `3-1` becomes `3.0 1.0`. A minus sign is a hyphen, so `-5` becomes `5.0`.
    """
    words = (_drop_word(word) for word in _DROP_BREAKS.split(text.lower()))
    return " ".join(word for word in words if word)


def drop_spans_match(predicted: Sequence[str], gold: Sequence[str]) -> bool:
    """True if both sides have equally many spans, and the same normalised ones in any order."""
    ours, theirs = map(drop_normalised, predicted), map(drop_normalised, gold)
    return len(predicted) == len(gold) and set(ours) == set(theirs)


def is_number(text: str) -> bool:
    """True if `float` reads it, as in DROP's script: also `1e3`, `nan` and the digits of other scripts."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _drop_word(word: str) -> str:
    plain = word if is_number(word) else word.translate(_WITHOUT_PUNCTUATION)
    normalised = str(float(plain)) if is_number(plain) else plain
    return " ".join(_ARTICLES.sub(" ", normalised).split())


def _strict_word(word: str) -> str:
    if any(sign.isdigit() for sign in word):
        return word.lstrip(_AROUND.replace(".", "")).rstrip(_AROUND)
    return hotpot_normalised(word)
