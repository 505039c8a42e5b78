"""Disagreements, order flips, and failures for the list of pairs in a report."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from judgelm.records import Judgment, Label, PairDistribution, Sample, Shown, Unparsed, failure_name
from judgelm.reports.cells import CellTexts
from judgelm.reports.wording import WINNER_NAMES
from judgelm.studies.evaluation import Evaluation
from judgelm.studies.pair_labels import pair_winner, scores_behind

MAX_LISTED = 500
MAX_TEXT = 20_000
MAX_EXAMPLE = 400
KINDS = ("disagreement", "order flip", "failure")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPair:
    """A pair in the list. Its strings are untrusted, and the template escapes them."""

    kinds: tuple[str, ...]
    judged: str
    scores: tuple[float, ...] | None
    judgment: Judgment
    label: Label | None
    sample: Sample | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairList:
    """The listed pairs, and the numbers of all pairs and of omitted pairs by kind."""

    pairs: tuple[ListedPair, ...]
    totals: Mapping[str, int]
    left_out: Mapping[str, int]


def list_pairs(
    evaluation: Evaluation,
    judgments: Mapping[str, Judgment],
    samples: Mapping[str, Sample],
    labels: Mapping[str, Label],
    cap: int = MAX_LISTED,
) -> PairList:
    """List at most `cap` pairs per kind, starting with the most confident disagreements."""
    wrong = [pair.sample_id for pair in evaluation.disagreements]
    members: dict[str, Sequence[str]] = {
        "disagreement": sorted(wrong, key=lambda key: -_sureness(judgments[key])),
        "order flip": evaluation.flips,
        "failure": (*evaluation.failed, *evaluation.half_failed),
    }
    kinds: dict[str, list[str]] = {}
    for kind, ids in members.items():
        for key in ids[:cap]:
            kinds.setdefault(key, []).append(kind)
    differing = {pair.sample_id: WINNER_NAMES[pair.judged] for pair in evaluation.disagreements}
    words = differing | dict.fromkeys(evaluation.failed, "failed")
    return PairList(
        pairs=tuple(
            ListedPair(
                kinds=tuple(names),
                judged=words.get(key, WINNER_NAMES[pair_winner(labels[key])]),
                scores=scores_behind(judgments[key], evaluation.order_rule),
                judgment=judgments[key],
                label=labels[key],
                sample=samples.get(key),
            )
            for key, names in kinds.items()
        ),
        totals={kind: len(ids) for kind, ids in members.items()},
        left_out={kind: max(0, len(ids) - cap) for kind, ids in members.items()},
    )


def _sureness(judgment: Judgment) -> float:
    if judgment.probability is not None:
        return abs(judgment.probability - 0.5)
    scores = judgment.scores
    return abs(scores[0] - scores[1]) if scores is not None and len(scores) == 2 else 0.0


def pairs_csv(listed: PairList) -> str:
    """Return the list as CSV, with formulas escaped for spreadsheets."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    texts = CellTexts(escape_formulas=True)
    writer.writerow(["id", "kinds", "judge", "score_1", "score_2", "probability_first", "label", "question"])
    for pair in listed.pairs:
        label = "" if pair.label is None else WINNER_NAMES[pair_winner(pair.label)]
        question = "" if pair.sample is None else pair.sample.question
        scores = pair.scores or ("", "")
        judgment = pair.judgment
        cells = [judgment.sample_id, "; ".join(pair.kinds), pair.judged, *scores[:2], judgment.probability, label]
        writer.writerow([texts.fitted(cell) for cell in (*cells, question)])
    return out.getvalue()


def list_verdicts(
    judgments: Mapping[str, Judgment], samples: Mapping[str, Sample], labels: Mapping[str, Label], cap: int = MAX_LISTED
) -> PairList:
    """List the first `cap` pairs of a run."""
    listed: list[ListedPair] = []
    for name, judgment in list(judgments.items())[:cap]:
        label = labels.get(name)
        flags = (
            label is not None and judgment.winner is not None and pair_winner(label) != judgment.winner,
            judgment.consistent is False,
            judgment.failure is not None,
        )
        kinds = tuple(kind for kind, applies in zip(KINDS, flags, strict=True) if applies)
        judged = "failed" if judgment.winner is None else WINNER_NAMES[judgment.winner]
        judged = "abstained" if judgment.abstained else judged
        pair = ListedPair(
            kinds=kinds, judged=judged, scores=judgment.scores, judgment=judgment, label=label, sample=samples.get(name)
        )
        listed.append(pair)
    totals = {kind: sum(kind in pair.kinds for pair in listed) for kind in KINDS}
    return PairList(pairs=tuple(listed), totals=totals, left_out=dict.fromkeys(KINDS, 0))


def score_text(scores: Sequence[float] | None) -> str:
    """Format scores as `8 : 6.5`, or a dash if there are none."""
    return "–" if scores is None else "\u00a0:\u00a0".join(f"{round(score, 2):g}" for score in scores)


def clipped(text: str, cap: int = MAX_TEXT) -> str:
    """Truncate text after `cap` characters, and append the number of characters that are not shown."""
    left = len(text) - cap
    return text if left <= 0 else f"{text[:cap]}\n[… {left:,} more characters are not shown]"


def failure_examples(
    evaluation: Evaluation, judgments: Mapping[str, Judgment], each: int = 3
) -> dict[str, list[tuple[str, str]]]:
    """Return up to `each` ids and replies per failure code."""
    examples: dict[str, list[tuple[str, str]]] = {code: [] for code in evaluation.failure_codes}
    for key in (*evaluation.failed, *evaluation.half_failed):
        judgment = judgments[key]
        failure = judgment.failure or next((shown.failure for shown in judgment.shown if shown.failure), None)
        if failure is not None and len(examples[failure.code]) < each:
            examples[failure.code].append((key, clipped(failure.text, MAX_EXAMPLE)))
    return examples


def reply_words(shown: Shown) -> dict[str, str | None]:
    """Describe a raw reply. `reason` is None if there is no reason or if it is part of the reply."""
    order = ", then ".join(f"answer {index + 1}" for index in shown.order)
    repaired = f"parsed after a constrained retry; first reply: {_failure_text(shown.repaired)}"
    return {
        "order": f"{order} ({shown.part})" if shown.part else order,
        "text": clipped(shown.text),
        "scores": score_text(shown.scores),
        "failure": _failure_text(shown.failure),
        "repaired": repaired if shown.repaired else "",
        "distribution": _distribution_text(shown.distribution) if shown.distribution else "",
        "reason": None if shown.reason is None or shown.reason in shown.text else clipped(shown.reason),
        "reason_failure": _failure_text(shown.reason_failure),
    }


def _failure_text(failure: Unparsed | None) -> str:
    if failure is None:
        return ""
    why = failure.why or (failure.text if failure.code == "engine" else "")
    return f"{failure_name(failure.code)}: {clipped(why, MAX_EXAMPLE)}".rstrip(": ")


def _distribution_text(distribution: PairDistribution) -> str:
    rest = f"{100 * distribution.unassigned:.1f}\u00a0% on other replies"
    if math.isnan(distribution.first_better):
        return rest
    expected = "\u00a0:\u00a0".join(f"{score:.2f}" for score in distribution.expected)
    exact = f" ({distribution.approximation})" if distribution.approximation else ""
    return f"expected scores {expected} · P(shown first is better) {distribution.first_better:.3f} · {rest}{exact}"
