"""Exact match, F1 and the judges' scores by data set and answering model; the judge everywhere or only where EM is 0.

Source: QA-Judge, section 5.2, Tables 3 and 11; section 6.1, Figure 2.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from judgelm.metrics.qa import ANSWER_TYPES
from judgelm.metrics.resampling import Estimate, Resampling, mean, share
from judgelm.records import failure_name
from judgelm.studies.qa.answers import FailureHandling, QaAnswer, QaRun
from judgelm.studies.result import Bars, Row, Table, bars, columns, table

Labelling = Callable[[QaAnswer], bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """Treatment of answers without a label, and resampling of intervals.

    Attributes:
        failures: `excluded` leaves them out, `as_incorrect` takes them for incorrect, as the original code does.
    """

    failures: FailureHandling = "excluded"
    resampling: Resampling = field(default_factory=Resampling)

    def label(self, judged: bool | None) -> bool | None:
        """The label that counts; None leaves the answer out."""
        return False if judged is None and self.failures == "as_incorrect" else judged

    def counted(self, answers: Sequence[QaAnswer], labelling: Labelling) -> list[tuple[QaAnswer, bool]]:
        """The answers that count, each with its label."""
        labels = [(answer, self.label(labelling(answer))) for answer in answers]
        return [(answer, label) for answer, label in labels if label is not None]

    def share(self, answers: Sequence[QaAnswer], labelling: Labelling) -> Estimate | None:
        """The share of correct among the answers that count; None where none does."""
        counted = self.counted(answers, labelling)
        if not counted:
            return None
        return share(
            np.array([label for _, label in counted]), [answer.question for answer, _ in counted], self.resampling
        )


def slug(name: str) -> str:
    """A name as part of a column's key."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def by_model(answers: Sequence[QaAnswer]) -> dict[tuple[str, str], list[QaAnswer]]:
    """Answers by data set and answering model, in the order of their first."""
    groups: dict[tuple[str, str], list[QaAnswer]] = {}
    for answer in answers:
        groups.setdefault((answer.data_set, answer.model), []).append(answer)
    return groups


def score_table(answers: Sequence[QaAnswer], runs: Sequence[QaRun], counting: Counting) -> Table:
    """EM, F1 and the share that each judge calls correct, an exact match counting as correct (Table 3)."""
    rows: list[Row] = []
    for (data_set, model), members in by_model(answers).items():
        questions = [answer.question for answer in members]
        exact = share(np.array([answer.own.exact for answer in members]), questions, counting.resampling)
        f1 = mean(np.array([answer.own.f1 for answer in members]), questions, counting.resampling)
        judged = [counting.share(members, run.cascade_label) for run in runs]
        rows.append((data_set, model, len(members), exact, f1, *judged))
    return table(
        rows,
        columns("text", data_set="data set", model="answering model"),
        columns("count", answers="answers"),
        columns("share", em="EM", f1="F1"),
        columns("share", ((f"judge_{slug(run.name)}", run.name) for run in runs)),
        name="scores",
        title="Exact match, F1 and judges, the judge asked where the answer does not match exactly",
        source="QA-Judge, Table 3",
        note="EM and F1 by each data set's own rules, best over the validated answers. A judge's score is the share "
        "of answers that match exactly or that it calls correct. "
        + (
            "Answers whose judgment failed or is missing are left out of it, so its n can be smaller."
            if counting.failures == "excluded"
            else "An answer whose judgment failed or is missing counts as incorrect, as in the original code."
        ),
    )


class Gap(NamedTuple):
    """A judge's score minus EM, over the answers that have a label."""

    judge: str
    data_set: str
    model: str
    points: Estimate


def gaps_to_em(answers: Sequence[QaAnswer], runs: Sequence[QaRun], counting: Counting) -> list[Gap]:
    """The gap of every judge, data set and answering model, the widest first; paired by answer."""
    gaps = []
    for run in runs:
        for (data_set, model), members in by_model(answers).items():
            counted = counting.counted(members, run.cascade_label)
            if counted:
                gains = np.array([float(label) - float(answer.own.exact) for answer, label in counted])
                points = mean(gains, [answer.question for answer, _ in counted], counting.resampling)
                gaps.append(Gap(run.name, data_set, model, points))
    return sorted(gaps, key=lambda gap: -gap.points.value)


def judged_everywhere_table(answers: Sequence[QaAnswer], runs: Sequence[QaRun], counting: Counting) -> Table | None:
    """The judge asked where EM is 0, against the judge asked about all; None where no run judged all (Table 11)."""
    rows: list[Row] = []
    groups = by_model(answers)
    for run in (run for run in runs if run.judged_all(answers)):
        for (data_set, model), members in groups.items():
            everywhere = {answer.id: label for answer, label in counting.counted(members, run.label)}
            counted = counting.counted([answer for answer in members if answer.id in everywhere], run.cascade_label)
            gaps = np.array([float(label) - float(everywhere[answer.id]) for answer, label in counted])
            questions = [answer.question for answer, _ in counted]
            gap = mean(gaps, questions, counting.resampling) if counted else None
            scores = (counting.share(members, run.cascade_label), counting.share(members, run.label))
            accepted = counting.share([answer for answer in members if answer.gate.exact], run.label)
            rows.append((data_set, model, run.name, *scores, gap, accepted))
    if not rows:
        return None
    return table(
        rows,
        columns("text", data_set="data set", model="answering model", judge="judge"),
        columns("share", em_first="EM first", all="all judged", gap="gap"),
        columns("share", exact_correct="exact matches called correct"),
        name="false-and-all",
        title="The judge asked where EM is 0, or about every answer",
        source="QA-Judge, Table 11",
        note="Both from one run that judged every answer: EM first takes exact matches for correct without asking. "
        "The gap is paired, over the answers that have both labels; undefined scores have no label at all, and the "
        "last column is undefined where no answer matches exactly.",
    )


def type_shares(
    answers: Sequence[QaAnswer], run: QaRun, counting: Counting
) -> dict[str, tuple[int, int, Estimate | None]]:
    """By answer type: answers, those with EM 0, and the share of these that the judge calls correct."""
    shares = {}
    for name in (*ANSWER_TYPES, *sorted({answer.answer_type for answer in answers} - set(ANSWER_TYPES))):
        members = [answer for answer in answers if answer.answer_type == name]
        false = [answer for answer in members if not answer.gate.exact]
        if members:
            shares[name] = (len(members), len(false), counting.share(false, run.label))
    return shares


def type_figure(run: QaRun, shares: dict[str, tuple[int, int, Estimate | None]]) -> Bars:
    """The share called correct among EM 0, by answer type (Figure 2)."""
    return bars(
        {run.name: [correct for _, _, correct in shares.values()]},
        shares,
        name="types-correct",
        title=f"Answers that do not match exactly, called correct by {run.name}",
        x_label="answer type",
        y_label="share called correct",
    )


def judge_table(answers: Sequence[QaAnswer], runs: Sequence[QaRun]) -> Table:
    """Outcomes of every answer under every run."""
    reasons = [run.reasons(answers) for run in runs]
    fixed = ("exact_match", "blank_answer", "judge", "read as incorrect")
    codes = sorted({code for counts in reasons for code in counts} - set(fixed))
    headings = ("exact match", "blank answer", "asked and read", "unreadable, taken for incorrect")
    outcomes = [*zip(fixed, headings, strict=True), *((code, failure_name(code)) for code in codes)]
    return table(
        [
            (run.judge, run.variant, len(answers), *(counts[key] for key, _ in outcomes))
            for run, counts in zip(runs, reasons, strict=True)
        ],
        columns("text", judge="judge", prompt="prompt"),
        columns("count", answers="answers"),
        columns("count", ((slug(key), heading) for key, heading in outcomes)),
        name="judges",
        title="Outcome of every answer",
        note="Exact matches and blank answers are decided without asking. The columns behind `unreadable` are "
        "failures: answers without a label, never taken for incorrect unless that is asked for.",
    )
