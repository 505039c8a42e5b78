"""What somebody who browses a run has before him: the run, another judge's, his labels, a filter, and his place."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from judgelm.errors import InputError
from judgelm.records import Judgment, Winner
from judgelm.serving.web.runs import FAILED, Run, flips, is_pair, verdict_word

ANY = "any"

PAGE = 20
"""Items in the list at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which items are listed; all of it must hold.

    Attributes:
        verdict: a verdict in a word (`1`, `tie`, `failed`, ...).
        category: of the sample.
        failure: code of the judgment's failure.
        orders: `agree`, `disagree` (the verdict flips with the order), or `one` where that is not known.
        other: `same` or `different` verdicts of the two judges.
        label: `labelled`, `not labelled`, or `against the judge`.
        text: is in the id, question, an answer, the reference, a reply or a reason; case does not matter.
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
    """A place in a run; every step makes a new one.

    Attributes:
        run: the judgments that are looked at.
        other: another judge's of the same items.
        labels: the person's own, by sample id; every one of the run's file of labels is among them.
        notes: what to know about that file, in words.
        filter: which items are listed.
        listed: their ids, in the run's order.
        position: of the current one among them.
    """

    run: Run
    other: Run | None = None
    labels: Mapping[str, Winner] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    filter: Filter = Filter()
    listed: tuple[str, ...] = ()
    position: int = 0

    @property
    def current(self) -> str | None:
        """Id of the item that is shown; None where the filter leaves none."""
        return self.listed[self.position] if self.listed else None

    @property
    def page(self) -> tuple[str, ...]:
        """The ids of the list's page that the current item stands on."""
        start = self.position - self.position % PAGE
        return self.listed[start : start + PAGE]

    def filtered(self, by: Filter) -> "BrowseState":
        """With the items that this filter leaves; the current one stays where it is among them."""
        listed = tuple(key for key in self.run.judgments if self._passes(key, by))
        position = listed.index(self.current) if self.current in listed else 0
        return replace(self, filter=by, listed=listed, position=position)

    def at(self, key: str) -> "BrowseState":
        """At the item of that id; where it is not listed, as it was."""
        return replace(self, position=self.listed.index(key)) if key in self.listed else self

    def moved(self, steps: int) -> "BrowseState":
        """So many items on or back, as far as there are any."""
        return replace(self, position=max(0, min(len(self.listed) - 1, self.position + steps)))

    def labelled(self, winner: Winner | None) -> "BrowseState":
        """With a label for the current item (None takes it away), kept in the run's file, and at the next item.

        Raises:
            InputError: there is no item, or it is no pair.
            RunError: the label cannot be kept, so it is not given.
        """
        if self.current is None:
            raise InputError("no item is listed; change the filters first")
        if not is_pair(self.run.judgments[self.current], self.run.samples.get(self.current)):
            raise InputError("only pairs of answers are labelled here, and this is none; filter for pairs")
        kept = {} if self.run.label_file is None else self.run.label_file.put(self.current, winner)
        labels = {key: value for key, value in {**self.labels, **kept}.items() if key != self.current}
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
            and by.other in (ANY, self.beside(key))
            and (by.label == ANY or by.label in self._label_state(key))
            and (not by.text.strip() or by.text.strip().casefold() in self._text(key))
        )

    def beside(self, key: str) -> str | None:
        """`same` or `different`, as the other judge's verdict is; None where one of them has none."""
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


def start_browsing(run: Run, *, other: Run | None = None, labels: Mapping[str, Winner] | None = None) -> BrowseState:
    """All items of a run, at the first, with the labels that were kept.

    Args:
        run: what is looked at.
        other: another judge's.
        labels: earlier ones, which stay on the page alone; a kept label of the same item goes before.

    Raises:
        InputError: the other run has none of the items, or the run's file of labels cannot be read.
    """
    if other is not None and not run.judgments.keys() & other.judgments.keys():
        raise InputError(
            f"{other.name} and {run.name} have no id in common; give another judge's run on the same items"
        )
    kept, notes = _kept(run)
    return BrowseState(run=run, other=other, labels={**(labels or {}), **kept}, notes=notes).filtered(Filter())


def _kept(run: Run) -> tuple[Mapping[str, Winner], tuple[str, ...]]:
    """The labels of the run's file, and what is wrong with it."""
    if run.label_file is None:
        return {}, ()
    winners, torn = run.label_file.read()
    if not torn:
        return winners, ()
    return winners, (f"The last line of {run.label_file.path} is torn and was passed over: give that label again.",)


def verdict_counts(browsing: BrowseState) -> dict[str, int]:
    """How many items have each verdict, and how many flip with the order; of all items, not of those listed."""
    judgments = browsing.run.judgments.values()
    counted = Counter(verdict_word(one) if is_pair(one, None) or one.verdict is None else "graded" for one in judgments)
    known = [found for one in judgments if (found := flips(one)) is not None]
    return dict(counted) | ({"judged in both orders": len(known), "flip with the order": sum(known)} if known else {})


def _orders(judgment: Judgment) -> str:
    found = flips(judgment)
    return "one" if found is None else "disagree" if found else "agree"
