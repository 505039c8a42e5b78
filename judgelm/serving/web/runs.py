"""Loads run files with their judged texts and the user's labels."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from judgelm.data.judged_texts import match_samples
from judgelm.data.labelled_set import match_labels, read_labels
from judgelm.data.samples import AS_WRITTEN, Reading, SampleStream
from judgelm.errors import InputError
from judgelm.modes.conversation import per_order
from judgelm.modes.votes import verdict_text
from judgelm.records import AbstainVerdict, Judgment, PairVerdict, Sample, Winner
from judgelm.reports.wording import WINNER_NAMES
from judgelm.runs.recorded_rows import recorded_reading
from judgelm.runs.run_files import read_judgments, recorded_input
from judgelm.serving.web.label_file import LabelFile, label_file_of, label_file_of_upload
from judgelm.studies.pair_labels import by_id, orders_of

FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRun:
    """An open run, with the latest judgment of each sample in file order.

    `samples` contains the judged texts by id, if they are known. If `label_file` is None, labels are not saved.
    """

    name: str
    judgments: Mapping[str, Judgment]
    samples: Mapping[str, Sample] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    label_file: LabelFile | None = None

    @property
    def verdicts(self) -> list[str]:
        """Verdicts, most frequent first."""
        return _by_frequency(verdict_word(judgment) for judgment in self.judgments.values())

    @property
    def categories(self) -> list[str]:
        """Categories, most frequent first."""
        return _by_frequency(sample.category for sample in self.samples.values() if sample.category)

    @property
    def questions(self) -> dict[str, str]:
        """Questions by sample id, if known."""
        return {key: sample.question for key, sample in self.samples.items()}

    @property
    def failures(self) -> list[str]:
        """Failure codes, most frequent first."""
        failures = (judgment.failure for judgment in self.judgments.values())
        return _by_frequency(failure.code for failure in failures if failure is not None)


def _by_frequency(words: Iterable[str]) -> list[str]:
    return [word for word, _ in Counter(words).most_common()]


def open_run(
    path: str | Path,
    texts: str | Path | None = None,
    *,
    name: str | None = None,
    uploaded: bool = False,
    reading: Reading = AS_WRITTEN,
) -> OpenRun:
    """Load a run file and the judged texts.

    `texts` is the judged file; the default is the file named in the manifest, if unchanged. `reading` sets the columns
    and sheet of `texts`. Labels of `uploaded` files are saved in a different folder.

    Raises:
        InputError: a file cannot be read, or the run file contains no judgments.
    """
    path = Path(path)
    judgments = read_judgments(path)
    if not judgments:
        raise InputError(f"{name or path.name}: no judgments found; expected an output file of judgelm-batch")
    notes: list[str] = []
    if texts is None:
        texts = recorded_input(path)
    if texts is not None:
        reading, note = recorded_reading(str(texts), reading, [path])
        notes += [note] if note else []
    samples = {} if texts is None else _samples(texts, judgments, notes, reading)
    if not samples:
        notes.append("The texts are missing, because a run file contains only ids. Add the judged file.")
    labels = label_file_of_upload(path) if uploaded else label_file_of(path)
    return OpenRun(name=name or path.name, judgments=judgments, samples=samples, notes=tuple(notes), label_file=labels)


def open_runs(paths: Sequence[Path], texts: Path | None = None, reading: Reading = AS_WRITTEN) -> list[OpenRun]:
    """Open run files. The names are file names, or paths if several files have the same name."""
    names = Counter(path.name for path in paths)
    shown = {path: path.name if names[path.name] == 1 else str(path) for path in paths}
    return [open_run(path, texts, name=name, reading=reading) for path, name in shown.items()]


def _samples(
    path: str | Path, judgments: Mapping[str, Judgment], notes: list[str], reading: Reading
) -> dict[str, Sample]:
    rejected = 0

    def count(reject: object) -> None:
        nonlocal rejected
        rejected += 1

    stream = SampleStream([str(path)], on_reject=count, reading=reading, repeats="skip")
    samples = {sample.id: sample for sample in stream if sample.id in judgments}
    if not samples:
        example = next(iter(judgments))
        finding = f"no id matches the run file, which contains ids such as {example!r}"
        raise InputError(f"{Path(path).name}: {finding}; choose the judged file")
    samples, texts = match_samples(judgments, samples, name=Path(path).name)
    notes += texts.notes()
    if rejected:
        notes.append(f"{rejected:,} invalid rows in {Path(path).name} were skipped.")
    return samples


def read_winners(path: str | Path, run: OpenRun, reading: Reading = AS_WRITTEN) -> dict[str, Winner]:
    """Load winners by sample id from a label file, converted to the run's order of answers."""
    labelled = read_labels(str(path), on_reject=lambda reject: None, reading=reading)
    labels = match_labels(run.judgments, labelled, name=Path(path).name)[0].labels
    winners = {key: label.winner for key, label in labels.items() if label.winner is not None}
    if not winners:
        raise InputError(f"{Path(path).name}: no label has a winner; choose a file with labels for pairs")
    return winners


def verdict_word(judgment: Judgment) -> str:
    """Format a verdict as `1`, `tie`, `7.5`, `2>1=3`, `correct`, or `failed`."""
    return FAILED if judgment.verdict is None else verdict_text(judgment.verdict)


def verdict_name(word: str) -> str:
    """Return the display name for a verdict word, such as `first better` for `1`."""
    return {"1": WINNER_NAMES[1], "2": WINNER_NAMES[2]}.get(word, word)


def is_pair(judgment: Judgment, sample: Sample | None) -> bool:
    """Return whether a judgment compares two answers."""
    if judgment.verdict is not None:
        return isinstance(judgment.verdict, PairVerdict | AbstainVerdict)
    if sample is not None:
        return len(sample.answers) == 2
    return any(len(shown.order) == 2 for shown in judgment.shown)


def flips(judgment: Judgment) -> bool | None:
    """Return whether the orders disagree, or None if only one order was requested or an order failed."""
    if judgment.consistent is not None:
        return not judgment.consistent
    orders = orders_of(next(iter(by_id([judgment]).values()))) if len(per_order(judgment.shown)) == 2 else None
    if orders is None or orders.swapped is None or orders.given.label is None or orders.swapped.label is None:
        return None
    return orders.given.label != orders.swapped.label
