"""The pairs worth reading: disagreements, order flips and failures, made ready for the report's list."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from judgelm.records import Judgment, Label, Sample, Shown
from judgelm.reports.wording import WINNER_NAMES
from judgelm.studies.evaluation import Evaluation

LIST_CAP = 500
TEXT_CAP = 20_000
EXAMPLE_CAP = 400
KINDS = ("disagreement", "order flip", "failure")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One raw reply: which answers stood first and second, what the judge wrote, and what went wrong."""

    order: str
    text: str
    scores: str
    failure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPair:
    """One entry; texts are raw and untrusted, the template escapes them. None where no sample was given."""

    id: str
    kinds: tuple[str, ...]
    judged: str
    scores: str
    label: str
    label_scores: str
    question: str | None
    answers: tuple[str, ...]
    reference: str | None
    replies: tuple[Reply, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairList:
    """The entries, and per kind how many there are and how many were left out to keep the file small."""

    pairs: tuple[ListedPair, ...]
    totals: Mapping[str, int]
    left_out: Mapping[str, int]


def list_pairs(
    evaluation: Evaluation,
    judgments: Mapping[str, Judgment],
    samples: Mapping[str, Sample],
    labels: Mapping[str, Label],
    cap: int = LIST_CAP,
) -> PairList:
    """At most `cap` pairs of each kind, disagreements first; a pair of two kinds is one entry."""
    members: dict[str, Sequence[str]] = {
        "disagreement": [pair.sample_id for pair in evaluation.disagreements],
        "order flip": evaluation.flips,
        "failure": evaluation.failed,
    }
    kinds: dict[str, list[str]] = {}
    for kind, ids in members.items():
        for key in ids[:cap]:
            kinds.setdefault(key, []).append(kind)
    differing = {pair.sample_id: WINNER_NAMES[pair.judged] for pair in evaluation.disagreements}
    answers = differing | dict.fromkeys(evaluation.failed, "failed")
    entries = ((judgments[key], tuple(found), answers.get(key)) for key, found in kinds.items())
    return PairList(
        pairs=tuple(
            _listed(judgment, found, judged, samples.get(judgment.sample_id), labels[judgment.sample_id])
            for judgment, found, judged in entries
        ),
        totals={kind: len(ids) for kind, ids in members.items()},
        left_out={kind: max(0, len(ids) - cap) for kind, ids in members.items()},
    )


def score_text(scores: Sequence[float] | None) -> str:
    """(8.0, 6.5) -> `8 : 6.5`, in one piece; a dash where there are none."""
    return "–" if scores is None else "\u00a0:\u00a0".join(f"{score:g}" for score in scores)


def clipped(text: str, cap: int = TEXT_CAP) -> str:
    """The text, or its first `cap` characters and how much of it is missing."""
    left = len(text) - cap
    return text if left <= 0 else f"{text[:cap]}\n[… {left:,} more characters are not shown]"


def _listed(
    judgment: Judgment, kinds: tuple[str, ...], judged: str | None, sample: Sample | None, label: Label
) -> ListedPair:
    """One entry; `judged` is None where the judge agrees with the label."""
    return ListedPair(
        id=judgment.sample_id,
        kinds=kinds,
        judged=judged or WINNER_NAMES[label.winner],
        scores=score_text(judgment.scores),
        label=WINNER_NAMES[label.winner],
        label_scores=score_text(label.scores),
        question=None if sample is None else clipped(sample.question),
        answers=() if sample is None else tuple(clipped(answer) for answer in sample.answers),
        reference=None if sample is None or sample.reference is None else clipped(sample.reference),
        replies=tuple(_reply(shown) for shown in judgment.shown),
    )


def failure_examples(
    evaluation: Evaluation, judgments: Mapping[str, Judgment], each: int = 3
) -> dict[str, list[tuple[str, str]]]:
    """By failure code, up to `each` pairs' ids and what the judge (or the engine) said."""
    found: dict[str, list[tuple[str, str]]] = {code: [] for code in evaluation.failure_codes}
    for key in evaluation.failed:
        judgment = judgments[key]
        failure = judgment.failure or next((shown.failure for shown in judgment.shown if shown.failure), None)
        if failure is not None and len(found[failure.code]) < each:
            found[failure.code].append((key, clipped(failure.text, EXAMPLE_CAP)))
    return found


def _reply(shown: Shown) -> Reply:
    failure = shown.failure
    return Reply(
        order=", then ".join(f"answer {place + 1}" for place in shown.order),
        text=clipped(shown.text),
        scores=score_text(shown.scores),
        failure="" if failure is None else f"{failure.code}: {failure.why}".rstrip(": "),
    )
