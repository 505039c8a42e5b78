"""Score short answers by exact match, F1, and judges, and measure self-preference.

The label is None if a judgment is missing or its reply cannot be parsed.

Source: QA-Judge, section 5.2, Tables 3 and 11; section 6.1, Figure 2; section 6.2, Tables 6 and 13.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from judgelm.data.sources.answer_types import ANSWER_TYPES, answer_type
from judgelm.errors import InputError
from judgelm.metrics.qa import PREFERENCE_THRESHOLDS, AnswerMatch, Preference, match, preferences
from judgelm.metrics.resampling import Estimate, Resampling, mean, share
from judgelm.parsing.short_answers import QaRules, golds_of
from judgelm.parsing.verdicts import read_label_original
from judgelm.records import Judgment, Sample, Unparsed, failure_name
from judgelm.studies.pair_labels import NOT_GIVEN, called_correct, grouped
from judgelm.studies.result import Forest, Layouts, Row, Table, columns, forest

LAYOUTS = Layouts(Path(__file__).with_suffix(".yaml"))

QaFailureHandling = Literal["excluded", "as_incorrect"]

AuthorsRule = Literal["first", "last_on_line"]
"""The original code's rules for finding the label.

`first`: in the first tags, or in the whole reply if it has no tags. `last_on_line` (for Mistral): in the last tags on a
line.
"""

_SET_RULES: Mapping[str, QaRules] = {"hotpotqa": "hotpotqa", "2wiki": "2wiki", "drop": "drop", "quoref": "quoref"}


@dataclass(frozen=True, slots=True, kw_only=True)
class QaAnswer:
    """A model's answer to a question.

    Attributes:
        question: key shared by all answers to the question.
        own: exact match and F1 under the data set's rules.
        gate: exact match and F1 under the rules that decide whether to call the judge.
        human: whether annotators consider the answer correct.
    """

    id: str
    question: str
    model: str
    data_set: str
    answer_type: str
    own: AnswerMatch
    gate: AnswerMatch
    human: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QaRun:
    """A judge's judgments with one prompt.

    If the judge has the same name as an answering model, they are the same model. `variant` is the name of the prompt,
    such as `6-shot`.
    """

    judge: str
    judgments: Mapping[str, Judgment]
    variant: str = "initial"

    @property
    def name(self) -> str:
        """The judge's name, with the prompt unless it is `initial`."""
        return self.judge if self.variant == "initial" else f"{self.judge} ({self.variant})"

    def label(self, answer: QaAnswer) -> bool | None:
        """Return the label from the judge or from a rule."""
        judgment = self.judgments.get(answer.id)
        return None if judgment is None else called_correct(judgment)

    def by_exact_match(self, answer: QaAnswer) -> bool:
        """Return whether the label is from an exact match."""
        judgment = self.judgments.get(answer.id)
        return judgment is not None and judgment.decided_by == "exact_match"

    def authors_reading(self, answer: QaAnswer, rule: AuthorsRule) -> Literal["correct", "incorrect", "neither"] | None:
        """Parse the reply like the original code, which counts `neither` as incorrect; None if not judged.

        A missing reply is also `neither`.
        """
        judgment = self.judgments.get(answer.id)
        if judgment is None or not (judgment.shown or judgment.failure):
            return None
        label = read_label_original(judgment.shown[0].text if judgment.shown else "", rule)
        return "neither" if isinstance(label, Unparsed) else label

    def authors_label(self, answer: QaAnswer, rule: AuthorsRule) -> bool | None:
        """Return True for an exact match, or if the original code parses the reply as CORRECT."""
        if answer.gate.exact or answer.id not in self.judgments:
            return True if answer.gate.exact else None
        reading = self.authors_reading(answer, rule)
        return self.label(answer) if reading is None else reading == "correct"

    def cascade_label(self, answer: QaAnswer) -> bool | None:
        """Return True for an exact match, else the judge's label."""
        return True if answer.gate.exact else self.label(answer)

    def judged_all(self, answers: Sequence[QaAnswer]) -> bool:
        """Return whether there are exact matches and the judge was called for all of them."""
        exact = [answer for answer in answers if answer.gate.exact and answer.id in self.judgments]
        return bool(exact) and not any(self.by_exact_match(answer) for answer in exact)

    def reasons(self, answers: Sequence[QaAnswer]) -> Counter[str]:
        """Count answers by the source of the label: `exact_match`, `judge`, a failure code, or `not judged`."""
        counts = Counter[str]()
        for answer in answers:
            judgment = self.judgments.get(answer.id)
            if judgment is None:
                counts["not judged"] += 1
            elif judgment.failure is not None:
                counts[judgment.failure.code] += 1
            else:
                unread = any(shown.failure is not None for shown in judgment.shown)
                counts["read as incorrect" if unread else judgment.decided_by or "judge"] += 1
        return counts


def qa_answers(
    samples: Iterable[Sample],
    human: Mapping[str, bool] | None = None,
    *,
    rules: QaRules = "hotpotqa",
    validated: bool = True,
) -> list[QaAnswer]:
    """Score answers against their gold answers.

    Args:
        samples: samples with one answer and a reference; for `metadata`, see `judgelm.data.sources.qa`.
        human: sample id -> whether annotators consider the answer correct.
        rules: exact-match rules that decide whether to call the judge; the original code always uses `hotpotqa`.
        validated: compare with all validated answers instead of only the first.

    Raises:
        InputError: a sample does not have one answer and a reference, or no answer has a human label.
    """
    answers = [_answer(sample, human or {}, rules, validated) for sample in samples]
    if human and all(answer.human is None for answer in answers):
        ids = f"{next(iter(human))!r} and {answers[0].id!r}" if answers else "no answers"
        raise InputError(f"qa: no human label matches an answer (ids: {ids}); use labels with the same ids")
    return answers


def _answer(sample: Sample, human: Mapping[str, bool], rules: QaRules, validated: bool) -> QaAnswer:
    golds = golds_of(sample)
    if len(sample.answers) != 1 or not golds:
        raise InputError(
            f"sample {sample.id}: expected one answer and a reference, got {len(sample.answers)} answers and "
            f"{'a' if golds else 'no'} reference; pass the file that was judged"
        )
    [predicted], metadata = sample.answers, sample.metadata
    data_set = str(metadata.get("data_set") or NOT_GIVEN)
    texts = [" ".join(gold) for gold in golds]
    return QaAnswer(
        id=sample.id,
        question=str(metadata.get("source_id") or sample.question),
        model=sample.answer_models[0] if sample.answer_models else str(metadata.get("model") or NOT_GIVEN),
        data_set=data_set,
        answer_type=str(metadata.get("answer_type") or answer_type(sample.question, texts)),
        own=match(predicted, golds, _SET_RULES.get(data_set, rules)),
        gate=match(predicted, golds[: None if validated else 1], rules),
        human=human.get(sample.id),
    )


Labelling = Callable[[QaAnswer], bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """Options for counting unlabelled answers and for resampling."""

    failures: QaFailureHandling = "excluded"
    resampling: Resampling = field(default_factory=Resampling)

    def label(self, judged: bool | None) -> bool | None:
        """Return the label to count; None excludes the answer."""
        return False if judged is None and self.failures == "as_incorrect" else judged

    def counted(self, answers: Sequence[QaAnswer], labelling: Labelling) -> list[tuple[QaAnswer, bool]]:
        """Return the counted answers with their labels."""
        labels = [(answer, self.label(labelling(answer))) for answer in answers]
        return [(answer, label) for answer, label in labels if label is not None]

    def share(self, answers: Sequence[QaAnswer], labelling: Labelling) -> Estimate | None:
        """Return the share of counted answers that are correct."""
        counted = self.counted(answers, labelling)
        labels, questions = [label for _, label in counted], [answer.question for answer, _ in counted]
        return share(np.array(labels), questions, self.resampling) if counted else None


def slug(name: str) -> str:
    """Convert a name for use in a column key."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _by_model(answers: Sequence[QaAnswer]) -> dict[tuple[str, str], list[QaAnswer]]:
    return grouped(answers, lambda answer: (answer.data_set, answer.model))


def score_table(answers: Sequence[QaAnswer], runs: Sequence[QaRun], counting: Counting) -> Table:
    """Build the table of EM, F1, and the share that each judge calls correct, including exact matches (Table 3)."""
    rows: list[Row] = []
    for (data_set, model), members in _by_model(answers).items():
        questions = [answer.question for answer in members]
        exact = share(np.array([answer.own.exact for answer in members]), questions, counting.resampling)
        f1 = mean(np.array([answer.own.f1 for answer in members]), questions, counting.resampling)
        judged = [counting.share(members, run.cascade_label) for run in runs]
        rows.append((data_set, model, len(members), exact, f1, *judged))
    excluded = "Answers with a failed or missing judgment are excluded, so n can be smaller."
    counted = "Failed and missing judgments count as incorrect, as in the original code."
    computed = columns("share", ((f"judge_{slug(run.name)}", run.name) for run in runs))
    return LAYOUTS.table("scores", rows, *computed, failures=excluded if counting.failures == "excluded" else counted)


class _Gap(NamedTuple):
    judge: str
    data_set: str
    model: str
    points: Estimate


def gaps_to_em(answers: Sequence[QaAnswer], runs: Sequence[QaRun], counting: Counting) -> list[_Gap]:
    """Return the paired difference from EM per judge, data set, and answering model, largest first."""
    gaps = []
    for run in runs:
        for (data_set, model), members in _by_model(answers).items():
            counted = counting.counted(members, run.cascade_label)
            if counted:
                gains = np.array([float(label) - float(answer.own.exact) for answer, label in counted])
                points = mean(gains, [answer.question for answer, _ in counted], counting.resampling)
                gaps.append(_Gap(run.name, data_set, model, points))
    return sorted(gaps, key=lambda gap: -gap.points.value)


def judged_everywhere_table(answers: Sequence[QaAnswer], runs: Sequence[QaRun], counting: Counting) -> Table | None:
    """Compare judging only answers with EM 0 to judging all answers (Table 11); None if no run judged all answers."""
    rows: list[Row] = []
    groups = _by_model(answers)
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
    return LAYOUTS.table("false-and-all", rows)


def type_shares(
    answers: Sequence[QaAnswer], run: QaRun, counting: Counting
) -> dict[str, tuple[int, int, Estimate | None]]:
    """Return the number of answers, the number with EM 0, and the share of the latter called correct, per type."""
    shares = {}
    for name in (*ANSWER_TYPES, *sorted({answer.answer_type for answer in answers} - set(ANSWER_TYPES))):
        members = [answer for answer in answers if answer.answer_type == name]
        false = [answer for answer in members if not answer.gate.exact]
        if members:
            shares[name] = (len(members), len(false), counting.share(false, run.label))
    return shares


def type_figure(run: QaRun, shares: dict[str, tuple[int, int, Estimate | None]]) -> Forest:
    """Plot the share of answers with EM 0 that are called correct, by answer type (Figure 2)."""
    rows = [(name, correct) for name, (_, _, correct) in shares.items()]
    return forest(rows, **LAYOUTS.figure("types-correct", judge=run.name))


def judge_table(answers: Sequence[QaAnswer], runs: Sequence[QaRun]) -> Table:
    """Count the outcomes of each run over all answers."""
    reasons = [run.reasons(answers) for run in runs]
    fixed = ("exact_match", "blank_answer", "judge", "read as incorrect")
    codes = sorted({code for counts in reasons for code in counts} - set(fixed))
    headings = ("exact match", "blank answer", "judged", "unreadable, counted as incorrect")
    outcomes = [*zip(fixed, headings, strict=True), *((code, failure_name(code)) for code in codes)]
    rows: list[Row] = [
        (run.judge, run.variant, len(answers), *(counts[key] for key, _ in outcomes))
        for run, counts in zip(runs, reasons, strict=True)
    ]
    return LAYOUTS.table("judges", rows, *columns("count", ((slug(key), heading) for key, heading in outcomes)))


class ModelPreference(NamedTuple):
    """A judge's preference for one model's answers, over `n` answers with EM 0 that every judge labelled."""

    model: str
    judge: str
    n: int
    left_out: int
    shares: tuple[Preference, ...]


def model_preferences(
    answers: Sequence[QaAnswer], runs: Sequence[QaRun], judges: Mapping[str, str], counting: Counting
) -> list[ModelPreference]:
    """Measure how strongly each answering model's own judge (in `judges`) prefers its answers."""
    by_judge = {run.judge: run for run in runs}
    rows = []
    for model in dict.fromkeys(answer.model for answer in answers):
        own = by_judge.get(judges.get(model, ""))
        others = [run for run in runs if own is not None and run.judge != own.judge]
        if own is None or not others:
            continue
        false = [answer for answer in answers if answer.model == model and not answer.gate.exact]
        labels = [[counting.label(run.label(answer)) for run in (own, *others)] for answer in false]
        complete = [index for index, row in enumerate(labels) if None not in row]
        matrix = np.array([labels[index] for index in complete], dtype=bool).reshape(len(complete), 1 + len(others))
        questions = [false[index].question for index in complete]
        shares = preferences(matrix[:, 0], matrix[:, 1:], questions, counting.resampling)
        rows.append(ModelPreference(model, own.judge, len(complete), len(false) - len(complete), shares))
    return rows


def preference_table(name: str, rows: Sequence[ModelPreference]) -> Table:
    """Build a table with one row per answering model and one column per threshold."""
    percents = [round(100 * threshold) for threshold in PREFERENCE_THRESHOLDS]
    cells: list[Row] = [
        (*(row.model, row.judge, row.shares[0].others, row.n, row.left_out), *(part.share for part in row.shares))
        for row in rows
    ]
    shares = columns("share", ((f"threshold_{part}", f"≥ {part} % of the others say incorrect") for part in percents))
    return LAYOUTS.table(name, cells, *shares)
