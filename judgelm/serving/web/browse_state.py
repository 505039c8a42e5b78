"""State of the browsing tab: the position in a run, the filter, and the user's labels."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from judgelm.errors import InputError
from judgelm.jsonl import encode_line
from judgelm.records import Judgment, Winner
from judgelm.serialization import judgment_row
from judgelm.serving.web.runs import FAILED, OpenRun, flips, is_pair, verdict_word

ANY = "any"
PAGE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions that an item must meet to be listed.

    Attributes:
        orders: `agree`, `disagree`, or `one` (only one order has a verdict).
        other: `same` or `different`, compared with the other judge's verdict.
        label: `labelled`, `not labelled`, or `against the judge`.
        text: searched in the id and all texts, ignoring case.
    """

    verdict: str = ANY
    category: str = ANY
    failure: str = ANY
    orders: str = ANY
    other: str = ANY
    label: str = ANY
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowseState:
    """Immutable state of the browsing tab. All methods return a new state.

    `listed` contains the ids of the items that match the filter; `position` is the index of the current item.
    """

    run: OpenRun
    other: OpenRun | None = None
    labels: Mapping[str, Winner] = field(default_factory=dict)
    filter: Filter = Filter()
    listed: tuple[str, ...] = ()
    position: int = 0

    @property
    def current(self) -> str | None:
        """Id of the current item, or None if no item matches the filter."""
        return self.listed[self.position] if self.listed else None

    @property
    def page(self) -> tuple[str, ...]:
        """Ids on the list page that contains the current item."""
        start = self.position - self.position % PAGE
        return self.listed[start : start + PAGE]

    def filtered(self, by: Filter) -> "BrowseState":
        """Apply a filter. Abstentions come first. The current item stays selected if it matches the filter."""
        passed = [key for key in self.run.judgments if self._passes(key, by)]
        listed = tuple(sorted(passed, key=lambda key: not self.run.judgments[key].abstained))
        position = listed.index(self.current) if self.current in listed else 0
        return replace(self, filter=by, listed=listed, position=position)

    def at(self, key: str) -> "BrowseState":
        """Go to an item. If the item is not listed, stay at the current item."""
        return replace(self, position=self.listed.index(key)) if key in self.listed else self

    def moved(self, steps: int) -> "BrowseState":
        """Move forwards or backwards in the list."""
        return replace(self, position=max(0, min(len(self.listed) - 1, self.position + steps)))

    def labelled(self, winner: Winner | None) -> "BrowseState":
        """Label the current item, save the label, and go to the next item. None removes the label."""
        if self.current is None:
            raise InputError("there is no item to label; change the filters first")
        if not is_pair(self.run.judgments[self.current], self.run.samples.get(self.current)):
            raise InputError("only pairs of answers can be labelled, and this item is not a pair")
        saved = {} if self.run.label_file is None else self.run.label_file.put(self.current, winner)
        labels = {key: value for key, value in {**self.labels, **saved}.items() if key != self.current}
        if winner is None:
            return replace(self, labels=labels)
        return replace(self, labels=labels | {self.current: winner}).moved(1)

    def _passes(self, key: str, by: Filter) -> bool:
        judgment, sample = self.run.judgments[key], self.run.samples.get(key)
        return (
            by.verdict in (ANY, verdict_word(judgment))
            and by.category in (ANY, sample.category if sample is not None else None)
            and by.failure in (ANY, judgment.failure.code if judgment.failure is not None else None)
            and by.orders in (ANY, _orders(judgment))
            and by.other in (ANY, self.comparison(key))
            and (by.label == ANY or by.label in self._label_state(key))
            and (not by.text.strip() or by.text.strip().casefold() in self._text(key))
        )

    def comparison(self, key: str) -> str | None:
        """Compare the two judges' verdicts: `same`, `different`, or None if a verdict is missing."""
        theirs = None if self.other is None else self.other.judgments.get(key)
        if theirs is None:
            return None
        words = {verdict_word(self.run.judgments[key]), verdict_word(theirs)}
        if FAILED in words:
            return None
        return "same" if len(words) == 1 else "different"

    def _label_state(self, key: str) -> tuple[str, ...]:
        if key not in self.labels:
            return ("not labelled",)
        judged = self.run.judgments[key].winner
        return ("labelled", "against the judge") if judged not in (None, self.labels[key]) else ("labelled",)

    def _text(self, key: str) -> str:
        judgment, sample = self.run.judgments[key], self.run.samples.get(key)
        texts = [key, *(shown.text for shown in judgment.shown), *(shown.reason or "" for shown in judgment.shown)]
        if sample is not None:
            texts += [sample.question, *sample.answers, sample.reference or ""]
        return "\n".join(texts).casefold()


def start_browsing(
    run: OpenRun, *, other: OpenRun | None = None, labels: Mapping[str, Winner] | None = None
) -> BrowseState:
    """Return the initial state, with all items listed.

    `labels` are not saved; labels from the run's label file override them.
    """
    if other is not None and not run.judgments.keys() & other.judgments.keys():
        raise InputError(
            f"{other.name} and {run.name} have no ids in common; choose a run by another judge on the same items"
        )
    saved = {} if run.label_file is None else run.label_file.read()
    return BrowseState(run=run, other=other, labels={**(labels or {}), **saved}).filtered(Filter())


def verdict_counts(browsing: BrowseState) -> dict[str, int]:
    """Count the items by verdict, and the items that flip with the order."""
    judgments = browsing.run.judgments.values()
    counted = Counter(
        verdict_word(each) if is_pair(each, None) or each.verdict is None else "graded" for each in judgments
    )
    known = [flipped for judgment in judgments if (flipped := flips(judgment)) is not None]
    return dict(counted) | ({"judged in both orders": len(known), "flip with the order": sum(known)} if known else {})


def _orders(judgment: Judgment) -> str:
    flipped = flips(judgment)
    return "one" if flipped is None else "disagree" if flipped else "agree"


def label_lines(browsing: BrowseState) -> Iterator[bytes]:
    """Yield the labels for `judgelm eval --labels`, with the texts if all texts are known."""
    samples = browsing.run.samples
    has_texts = all(key in samples and len(samples[key].answers) == 2 for key in browsing.labels)
    for key, winner in browsing.labels.items():
        row: dict[str, object] = {"id": key, "winner": winner}
        if has_texts:
            sample = samples[key]
            first, second = sample.answers
            row |= {"question": sample.question, "answer_1": first, "answer_2": second}
            row |= {"reference": sample.reference, "category": sample.category}
        yield encode_line(row)


def item_lines(browsing: BrowseState) -> Iterator[bytes]:
    """Yield the listed items as run file rows, with texts, the other judge's verdict, and the label added."""
    for key in browsing.listed:
        row: dict[str, object] = dict(judgment_row(browsing.run.judgments[key]))
        if (sample := browsing.run.samples.get(key)) is not None:
            row |= {"question": sample.question, "answers": list(sample.answers), "reference": sample.reference}
            row |= {"category": sample.category}
        if browsing.other is not None and key in browsing.other.judgments:
            row["other_verdict"] = verdict_word(browsing.other.judgments[key])
        if key in browsing.labels:
            row["label"] = browsing.labels[key]
        yield encode_line(row)
