"""Run files made ready to browse: judgments with the texts that they are about, joined by id."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from judgelm.data.labelled_set import read_labels
from judgelm.data.samples import SampleStream
from judgelm.errors import InputError, RunError
from judgelm.modes.conversation import per_order
from judgelm.records import Judgment, PairVerdict, Sample, Winner
from judgelm.reports.wording import WINNER_NAMES
from judgelm.runs.aggregation import verdict_text
from judgelm.runs.fingerprint import input_identities
from judgelm.runs.run_files import read_judgments, read_manifest
from judgelm.serving.web.label_file import LabelFile, beside_run, of_upload
from judgelm.studies.pair_labels import by_id, orders_of

FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The judgments of one run file.

    Attributes:
        name: of the file.
        judgments: by sample id, in the order written, the latest of each.
        samples: the texts by id, of those that are known.
        notes: what to know about the files, in words.
        label_file: where labels given to its pairs are kept; None keeps them on the page alone.
    """

    name: str
    judgments: Mapping[str, Judgment]
    samples: Mapping[str, Sample] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    label_file: LabelFile | None = None

    @property
    def verdicts(self) -> list[str]:
        """The verdicts in a word, the most frequent first."""
        counted = Counter(verdict_word(one) for one in self.judgments.values())
        return [word for word, _ in counted.most_common()]

    @property
    def categories(self) -> list[str]:
        """The samples' categories, those of the most items first."""
        counted = Counter(sample.category for sample in self.samples.values() if sample.category)
        return [name for name, _ in counted.most_common()]

    @property
    def failures(self) -> list[str]:
        """The codes of what went wrong, the most frequent first."""
        counted = Counter(one.failure.code for one in self.judgments.values() if one.failure is not None)
        return [code for code, _ in counted.most_common()]


def open_run(
    path: str | Path, texts: str | Path | None = None, *, name: str | None = None, uploaded: bool = False
) -> Run:
    """Read a run file, and the texts of what it judged.

    Args:
        path: `OUT.jsonl` of judgelm-batch, a panel or a cascade.
        texts: the file that was judged, in any format judgelm reads; without one the file that the manifest names is
            taken where it lies beside the run and is still the same.
        name: what to call it; the file's name where None.
        uploaded: by a browser, so that nothing beside it lasts: labels are kept elsewhere.

    Raises:
        InputError: a file cannot be read, or the run file holds no judgments.
    """
    path = Path(path)
    judgments = read_judgments(path)
    if not judgments:
        raise InputError(f"{name or path.name}: holds no judgments; give the OUT.jsonl that judgelm-batch wrote")
    notes: list[str] = []
    if texts is None:
        texts = texts_beside(path)
    samples = {} if texts is None else _samples(texts, judgments, notes)
    if not samples:
        notes.append("The texts are not there: a run file holds ids only. Give the file that was judged as well.")
    return Run(
        name=name or path.name,
        judgments=judgments,
        samples=samples,
        notes=tuple(notes),
        label_file=of_upload(path) if uploaded else beside_run(path),
    )


def open_runs(paths: Sequence[Path], texts: Path | None = None) -> list[Run]:
    """Run files of the command line, each by its file's name, or by its path where two have one name.

    Raises:
        InputError: as `open_run`.
    """
    names = Counter(path.name for path in paths)
    return [open_run(path, texts, name=path.name if names[path.name] == 1 else str(path)) for path in paths]


def texts_beside(path: Path) -> Path | None:
    """The input that a run's manifest names, where it lies beside the run file and has not changed since."""
    try:
        manifest = read_manifest(path)
    except RunError:
        return None
    inputs = (manifest or {}).get("fingerprint", {}).get("input", [])
    for one in inputs[:1]:
        beside = path.parent / Path(str(one["file"])).name
        if beside.is_file() and input_identities([str(beside)]) == [one]:
            return beside
    return None


def _samples(path: str | Path, judgments: Mapping[str, Judgment], notes: list[str]) -> dict[str, Sample]:
    """The samples that were judged, by id; how many judgments have none is noted."""
    rejected = 0

    def count(reject: object) -> None:
        nonlocal rejected
        rejected += 1

    found = {sample.id: sample for sample in SampleStream([str(path)], on_reject=count) if sample.id in judgments}
    if not found:
        example = next(iter(judgments))
        raise InputError(
            f"{Path(path).name}: none of its ids is in the run file (an id there: {example!r}); give the file that was "
            "judged"
        )
    if missing := len(judgments) - len(found):
        notes.append(f"{missing:,} judgments have no texts in {Path(path).name}.")
    if rejected:
        notes.append(f"{rejected:,} rows of {Path(path).name} could not be used.")
    return found


def read_winners(path: str | Path) -> dict[str, Winner]:
    """The winners that a file of labels names, by sample id.

    Raises:
        InputError: the file cannot be read, or none of its rows names a winner.
    """
    labels = read_labels(str(path), on_reject=lambda reject: None).labels
    found = {key: label.winner for key, label in labels.items() if label.winner is not None}
    if not found:
        raise InputError(f"{Path(path).name}: none of its labels names a winner; give the labels of pairs")
    return found


def verdict_word(judgment: Judgment) -> str:
    """`1`, `tie`, `7.5`, `2>1=3`, `correct`, or `failed`."""
    return FAILED if judgment.verdict is None else verdict_text(judgment.verdict)


def verdict_name(word: str) -> str:
    """A verdict in a word as a person would say it: `first better`, `tie`, `7.5`, `failed`."""
    return {"1": WINNER_NAMES[1], "2": WINNER_NAMES[2]}.get(word, word)


def is_pair(judgment: Judgment, sample: Sample | None) -> bool:
    """Whether the judgment is of two answers; of a failed one the texts say it, or the orders shown."""
    if judgment.verdict is not None:
        return isinstance(judgment.verdict, PairVerdict)
    if sample is not None:
        return len(sample.answers) == 2
    return any(len(shown.order) == 2 for shown in judgment.shown)


def flips(judgment: Judgment) -> bool | None:
    """Whether the orders disagree; None where only one was asked for, or one failed."""
    if judgment.consistent is not None:
        return not judgment.consistent
    orders = orders_of(next(iter(by_id([judgment]).values()))) if len(per_order(judgment.shown)) == 2 else None
    if orders is None or orders.swapped is None or orders.given.label is None or orders.swapped.label is None:
        return None
    return orders.given.label != orders.swapped.label
