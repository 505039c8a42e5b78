"""Run files to browse: judgments joined with the judged texts, labels of the user, and a position among them.

Labels are saved in a file at once, so that neither a reload nor a killed server loses one: a line for each, `{"id":
..., "winner": ...}`, as `judgelm eval --labels` reads them. Ids must be unique there, so a changed or removed label
changes its line: a new file is written beside the old one and replaces it.
"""

import fcntl
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from judgelm.data.judged_texts import match_samples
from judgelm.data.labelled_set import match_labels, read_labels
from judgelm.data.readers.rows import Row
from judgelm.data.samples import AS_WRITTEN, Reading, SampleStream
from judgelm.data.sources.source import winner_field
from judgelm.errors import InputError, RunError
from judgelm.jsonl import encode_line, read_jsonl
from judgelm.modes.conversation import per_order
from judgelm.modes.votes import verdict_text
from judgelm.records import Judgment, PairVerdict, Sample, Winner
from judgelm.reports.wording import WINNER_NAMES
from judgelm.runs.recorded_rows import recorded_reading
from judgelm.runs.run_files import input_beside, read_judgments
from judgelm.runs.runner import judgment_row
from judgelm.studies.pair_labels import by_id, orders_of

_SUFFIX = ".labels.jsonl"
_LONGEST_STEM = 80


class StoredLabels(NamedTuple):
    """Contents of a file of labels: the winners by sample id, and whether an incomplete last line was skipped."""

    winners: dict[str, Winner]
    torn: bool


@dataclass(frozen=True, slots=True)
class LabelFile:
    """A run's file of labels, which several pages and servers may write at once; it need not exist yet."""

    path: Path

    def read(self) -> StoredLabels:
        """All labels; of two for one id the later.

        Raises:
            InputError: the file cannot be read, or has lines that the page does not write.
        """
        winners: dict[str, Winner] = {}
        line = 0
        if not self.path.exists():
            return StoredLabels(winners, torn=False)
        try:
            for line, row in read_jsonl(self.path):
                winners |= _winner(Row(str(self.path), line, row))
        except InputError:
            if not self._is_torn_after(line):
                raise
            return StoredLabels(winners, torn=True)
        return StoredLabels(winners, torn=False)

    def put(self, key: str, winner: Winner | None) -> dict[str, Winner]:
        """Write a label, or remove it where it is None; it is on disk once this has returned.

        Returns:
            All labels of the file, also those written by others meanwhile.

        Raises:
            InputError: as `read`; nothing is written.
            RunError: the file cannot be written; it is as it was before.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path):
                winners = self.read().winners
                winners.pop(key, None)
                if winner is not None:
                    winners[key] = winner
                self._replace(winners)
        except OSError as error:
            raise RunError(
                f"{self.path}: this label is not saved: {error.strerror or error}; free some space, or let "
                "`judgelm web` write there, and give it again (labels of uploaded files are saved in another folder)"
            ) from error
        return winners

    def _replace(self, winners: dict[str, Winner]) -> None:
        draft = self.path.with_suffix(".tmp")
        try:
            with draft.open("wb") as file:
                file.writelines(encode_line({"id": key, "winner": winner}) for key, winner in winners.items())
                file.flush()
                os.fsync(file.fileno())  # a power cut after the exchange would otherwise take all labels, not the last
            os.replace(draft, self.path)  # from here on another holds the lock, and the draft is theirs
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def _is_torn_after(self, line: int) -> bool:
        """True where the rest after this line is one line without a line end."""
        written = self.path.read_bytes()
        return not written.endswith(b"\n") and written.count(b"\n") == line


def beside_run(run: Path) -> LabelFile:
    """The labels of a run file on this machine: `judgments.labels.jsonl` beside `judgments.jsonl`."""
    return LabelFile(run.with_name(run.name.removesuffix(".jsonl") + _SUFFIX))


def of_upload(run: Path) -> LabelFile:
    """The labels of an uploaded run file, which is deleted when the page ends.

    They are in the user's folder for state (`$XDG_STATE_HOME/judgelm/labels`), named by the run file's content, so that
    they are found again when the same file is uploaded again.

    Raises:
        InputError: the run file cannot be read.
    """
    try:
        with run.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise InputError(f"{run.name}: cannot read: {error.strerror or error}; upload it again") from error
    state = Path(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"))
    stem = run.name.removesuffix(".jsonl")[:_LONGEST_STEM]
    return LabelFile(state / "judgelm" / "labels" / f"{stem}-{digest}{_SUFFIX}")


def _winner(row: Row) -> dict[str, Winner]:
    """The line's label by its id. Lines with more fields are refused, since the page would drop the fields."""
    key = row.data.get("id")
    if row.data.keys() != {"id", "winner"} or not isinstance(key, str):
        finding = "expected exactly an id and a winner, as written by the page"
        raise row.error(f"{finding}; give this file another name, and open it under Earlier labels")
    return {key: winner_field(row)}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock the file against other writers; after a wait for a file that was replaced meanwhile, lock the new one."""
    while True:
        with path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield
                return


FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRun:
    """The judgments of one run file.

    Attributes:
        name: of the file.
        judgments: by sample id, in the order written, the latest of each.
        samples: the texts by id, of those that are known.
        notes: on the files, in words.
        label_file: for labels of its pairs; None keeps them on the page alone.
    """

    name: str
    judgments: Mapping[str, Judgment]
    samples: Mapping[str, Sample] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    label_file: LabelFile | None = None

    @property
    def verdicts(self) -> list[str]:
        """The verdicts in a word, the most frequent first."""
        counted = Counter(verdict_word(judgment) for judgment in self.judgments.values())
        return [word for word, _ in counted.most_common()]

    @property
    def categories(self) -> list[str]:
        """The samples' categories, those of the most items first."""
        counted = Counter(sample.category for sample in self.samples.values() if sample.category)
        return [name for name, _ in counted.most_common()]

    @property
    def questions(self) -> dict[str, str]:
        """The questions by sample id, of those samples that are known."""
        return {key: sample.question for key, sample in self.samples.items()}

    @property
    def failures(self) -> list[str]:
        """The codes of the failures, the most frequent first."""
        failures = (judgment.failure for judgment in self.judgments.values())
        counted = Counter(failure.code for failure in failures if failure is not None)
        return [code for code, _ in counted.most_common()]


def open_run(
    path: str | Path,
    texts: str | Path | None = None,
    *,
    name: str | None = None,
    uploaded: bool = False,
    reading: Reading = AS_WRITTEN,
) -> OpenRun:
    """Read a run file and the judged texts.

    Args:
        path: `OUT.jsonl` of judgelm-batch, a panel or a cascade.
        texts: the judged file, in any format judgelm reads; by default the file named by the manifest, where it is
            beside the run and unchanged.
        name: of the run; the file's name where None.
        uploaded: by a browser to a temporary folder, so that labels are saved elsewhere.
        reading: the user's column names and sheet of the judged file; others are the manifest's.

    Raises:
        InputError: a file cannot be read, or the run file has no judgments.
    """
    path = Path(path)
    judgments = read_judgments(path)
    if not judgments:
        raise InputError(f"{name or path.name}: no judgments found; give the OUT.jsonl of judgelm-batch")
    notes: list[str] = []
    if texts is None:
        texts = input_beside(path)
    if texts is not None:
        reading, note = recorded_reading(str(texts), reading, [path])
        notes += [note] if note else []
    samples = {} if texts is None else _samples(texts, judgments, notes, reading)
    if not samples:
        notes.append("The texts are missing: a run file has ids only. Give the judged file as well.")
    return OpenRun(
        name=name or path.name,
        judgments=judgments,
        samples=samples,
        notes=tuple(notes),
        label_file=of_upload(path) if uploaded else beside_run(path),
    )


def open_runs(paths: Sequence[Path], texts: Path | None = None, reading: Reading = AS_WRITTEN) -> list[OpenRun]:
    """Run files of the command line, each by its file's name, or by its path where two have one name.

    Raises:
        InputError: as `open_run`.
    """
    names = Counter(path.name for path in paths)
    shown = {path: path.name if names[path.name] == 1 else str(path) for path in paths}
    return [open_run(path, texts, name=name, reading=reading) for path, name in shown.items()]


def _samples(
    path: str | Path, judgments: Mapping[str, Judgment], notes: list[str], reading: Reading
) -> dict[str, Sample]:
    """The judged samples by id; the number of judgments without one is noted."""
    rejected = 0

    def count(reject: object) -> None:
        nonlocal rejected
        rejected += 1

    stream = SampleStream([str(path)], on_reject=count, reading=reading, repeats="skip")
    samples = {sample.id: sample for sample in stream if sample.id in judgments}
    if not samples:
        example = next(iter(judgments))
        raise InputError(
            f"{Path(path).name}: none of its ids is in the run file (an id there: {example!r}); give the judged file"
        )
    samples, texts = match_samples(judgments, samples, name=Path(path).name)
    notes += texts.notes()
    if rejected:
        notes.append(f"{rejected:,} rows of {Path(path).name} could not be used.")
    return samples


def read_winners(path: str | Path, run: OpenRun, reading: Reading = AS_WRITTEN) -> dict[str, Winner]:
    """The winners in a file of labels, by sample id, in the order of the answers that the run judged.

    Raises:
        InputError: the file cannot be read, no row has a winner, or its rows have other texts than the run.
    """
    labelled = read_labels(str(path), on_reject=lambda reject: None, reading=reading)
    labels = match_labels(run.judgments, labelled, name=Path(path).name)[0].labels
    winners = {key: label.winner for key, label in labels.items() if label.winner is not None}
    if not winners:
        raise InputError(f"{Path(path).name}: no label has a winner; give the labels of pairs")
    return winners


def verdict_word(judgment: Judgment) -> str:
    """`1`, `tie`, `7.5`, `2>1=3`, `correct`, or `failed`."""
    return FAILED if judgment.verdict is None else verdict_text(judgment.verdict)


def verdict_name(word: str) -> str:
    """A verdict word for readers: `first better`, `tie`, `7.5`, `failed`."""
    return {"1": WINNER_NAMES[1], "2": WINNER_NAMES[2]}.get(word, word)


def is_pair(judgment: Judgment, sample: Sample | None) -> bool:
    """True for a judgment of two answers; of a failed one the texts decide, or the orders shown."""
    if judgment.verdict is not None:
        return isinstance(judgment.verdict, PairVerdict)
    if sample is not None:
        return len(sample.answers) == 2
    return any(len(shown.order) == 2 for shown in judgment.shown)


def flips(judgment: Judgment) -> bool | None:
    """True where the orders disagree; None where only one was requested, or one failed."""
    if judgment.consistent is not None:
        return not judgment.consistent
    orders = orders_of(next(iter(by_id([judgment]).values()))) if len(per_order(judgment.shown)) == 2 else None
    if orders is None or orders.swapped is None or orders.given.label is None or orders.swapped.label is None:
        return None
    return orders.given.label != orders.swapped.label


ANY = "any"

PAGE = 20
"""Items in the list at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions on the listed items; all must hold.

    Attributes:
        verdict: a verdict in a word (`1`, `tie`, `failed`, ...).
        category: of the sample.
        failure: code of the judgment's failure.
        orders: `agree`, `disagree` (the verdict flips with the order), or `one` where that is unknown.
        other: `same` or `different` verdicts of the two judges.
        label: `labelled`, `not labelled`, or `against the judge`.
        text: contained in the id, question, an answer, the reference, a reply or a reason; case does not matter.
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
    """A position in a run; every step makes a new state.

    Attributes:
        run: the judgments to browse.
        other: another judge's of the same items.
        labels: of the user, by sample id; they include those of the run's label file.
        notes: on that file, in words.
        filter: which items are listed.
        listed: their ids, in the run's order.
        position: of the current one among them.
    """

    run: OpenRun
    other: OpenRun | None = None
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
        """The ids of the list's page with the current item."""
        start = self.position - self.position % PAGE
        return self.listed[start : start + PAGE]

    def filtered(self, by: Filter) -> "BrowseState":
        """The state with the items that pass a filter; the current one stays if it is among them."""
        listed = tuple(key for key in self.run.judgments if self._passes(key, by))
        position = listed.index(self.current) if self.current in listed else 0
        return replace(self, filter=by, listed=listed, position=position)

    def at(self, key: str) -> "BrowseState":
        """The state at an item; unchanged where it is not listed."""
        return replace(self, position=self.listed.index(key)) if key in self.listed else self

    def moved(self, steps: int) -> "BrowseState":
        """The state some items forward or back, within the list."""
        return replace(self, position=max(0, min(len(self.listed) - 1, self.position + steps)))

    def labelled(self, winner: Winner | None) -> "BrowseState":
        """The state with a label for the current item (None removes it), saved in the run's file, at the next item.

        Raises:
            InputError: there is no item, or it is no pair.
            RunError: the label cannot be saved; it is not given.
        """
        if self.current is None:
            raise InputError("no item is listed; change the filters first")
        if not is_pair(self.run.judgments[self.current], self.run.samples.get(self.current)):
            raise InputError("only pairs of answers are labelled here, and this is none; filter for pairs")
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
        """`same` or `different` verdicts of the two judges; None where one of them has none."""
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
    """The state of a run with all items, at the first, with the saved labels.

    Args:
        run: to browse.
        other: another judge's.
        labels: earlier ones, which stay on the page alone; a saved label of the same item has precedence.

    Raises:
        InputError: the other run has none of the items, or the run's file of labels cannot be read.
    """
    if other is not None and not run.judgments.keys() & other.judgments.keys():
        raise InputError(
            f"{other.name} and {run.name} have no id in common; give another judge's run on the same items"
        )
    saved, notes = _saved_labels(run)
    return BrowseState(run=run, other=other, labels={**(labels or {}), **saved}, notes=notes).filtered(Filter())


def _saved_labels(run: OpenRun) -> tuple[Mapping[str, Winner], tuple[str, ...]]:
    """The labels of the run's file, and notes on its damage."""
    if run.label_file is None:
        return {}, ()
    winners, torn = run.label_file.read()
    if not torn:
        return winners, ()
    return winners, (f"The last line of {run.label_file.path} is incomplete and was skipped: give that label again.",)


def verdict_counts(browsing: BrowseState) -> dict[str, int]:
    """Numbers of items by verdict, and of those that flip with the order; over all items, not the listed ones."""
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
    """The labels as rows for `judgelm eval --labels`; with the texts where all of them are known."""
    samples = browsing.run.samples
    whole = all(key in samples and len(samples[key].answers) == 2 for key in browsing.labels)
    for key, winner in browsing.labels.items():
        row: dict[str, object] = {"id": key, "winner": winner}
        if whole:
            sample = samples[key]
            first, second = sample.answers
            row |= {"question": sample.question, "answer_1": first, "answer_2": second}
            row |= {"reference": sample.reference, "category": sample.category}
        yield encode_line(row)


def item_lines(browsing: BrowseState) -> Iterator[bytes]:
    """The listed items: rows of the run with their texts, the other judge's verdict and the label, where known."""
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
