"""Predicted answers with their exact match and F1, and what judges called them; joined by sample id.

Nothing is dropped here: an answer without a judgment, and a reply that no label can be read from, is None among the
labels and counted with its reason.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from judgelm.errors import InputError
from judgelm.metrics.qa import AnswerMatch, answer_type, match
from judgelm.parsing.answer_tags import read_label_original
from judgelm.parsing.short_answers import QaRules, golds_of
from judgelm.records import Judgment, LabelVerdict, Sample, Unparsed

FailureHandling = Literal["excluded", "as_incorrect"]

AuthorsRule = Literal["first", "last_on_line"]
"""Where the authors' code finds a judge's label: in the first tags or the whole reply; of their Mistral judge in the
last tags on one line."""

_SET_RULES: Mapping[str, QaRules] = {"hotpotqa": "hotpotqa", "2wiki": "2wiki", "drop": "drop", "quoref": "quoref"}
NOT_GIVEN = "not given"


@dataclass(frozen=True, slots=True, kw_only=True)
class QaAnswer:
    """One model's answer to one question.

    Attributes:
        question: key of the question, the same for all models' answers to it.
        own: exact match and F1 by the rules of the data set itself, best over the validated answers.
        gate: the same by the rules that decide whether the judge is asked, for all data sets alike.
        human: whether people call it correct; None without their label.
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
    """One judge's judgments of the answers, made with one prompt.

    Attributes:
        judge: its name; where it is an answering model's, it is that model's own judge.
        variant: name of the prompt, such as `6-shot`.
    """

    judge: str
    judgments: Mapping[str, Judgment]
    variant: str = "initial"

    @property
    def name(self) -> str:
        """Judge and prompt."""
        return self.judge if self.variant == "initial" else f"{self.judge} ({self.variant})"

    def label(self, answer: QaAnswer) -> bool | None:
        """The judge's label, or that of the rule that decided without it; None without label."""
        judgment = self.judgments.get(answer.id)
        return None if judgment is None else label_of(judgment)

    def by_exact_match(self, answer: QaAnswer) -> bool:
        """True where the run took the answer for an exact match, without a call of the judge."""
        judgment = self.judgments.get(answer.id)
        return judgment is not None and judgment.decided_by == "exact_match"

    def authors_reading(self, answer: QaAnswer, rule: AuthorsRule) -> Literal["correct", "incorrect", "neither"] | None:
        """The judge's reply as the authors' code reads it; `neither` counts as incorrect there. None where none was.

        A reply that never came (a prompt too long, a lost server) is `neither` too: their code has no such case.
        """
        judgment = self.judgments.get(answer.id)
        if judgment is None or not (judgment.shown or judgment.failure):
            return None
        label = read_label_original(judgment.shown[0].text if judgment.shown else "", rule)
        return "neither" if isinstance(label, Unparsed) else label

    def authors_label(self, answer: QaAnswer, rule: AuthorsRule) -> bool | None:
        """Correct where the answer matches exactly or their code reads CORRECT, else incorrect; None if not judged."""
        if answer.gate.exact or answer.id not in self.judgments:
            return True if answer.gate.exact else None
        reading = self.authors_reading(answer, rule)
        return self.label(answer) if reading is None else reading == "correct"

    def cascade_label(self, answer: QaAnswer) -> bool | None:
        """Correct where the answer matches exactly, else the judge's label: also of a run that judged all."""
        return True if answer.gate.exact else self.label(answer)

    def judged_all(self, answers: Sequence[QaAnswer]) -> bool:
        """True where the run also judged every answer that matches exactly, and there are some."""
        exact = [answer for answer in answers if answer.gate.exact and answer.id in self.judgments]
        return bool(exact) and not any(self.by_exact_match(answer) for answer in exact)

    def reasons(self, answers: Sequence[QaAnswer]) -> Counter[str]:
        """Numbers of answers by the source of their label: `exact_match`, `judge`, a failure's code, `not judged`."""
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


def label_of(judgment: Judgment) -> bool | None:
    """True for a judgment of correct, False for incorrect; None where it failed.

    Raises:
        InputError: it is of another mode.
    """
    if judgment.verdict is None:
        return None
    if isinstance(judgment.verdict, LabelVerdict) and judgment.verdict.label in ("correct", "incorrect"):
        return judgment.verdict.label == "correct"
    raise InputError(f"judgment {judgment.sample_id}: mode {judgment.mode} says neither correct nor incorrect; use qa")


def qa_answers(
    samples: Iterable[Sample],
    human: Mapping[str, bool] | None = None,
    *,
    rules: QaRules = "hotpotqa",
    validated: bool = True,
) -> list[QaAnswer]:
    """Score predicted answers against their gold answers.

    Args:
        samples: with one answer and a reference each; `metadata` as `judgelm.data.sources.qa` gives it.
        human: by sample id, whether people call the answer correct.
        rules: whose exact match decides whether the judge is asked; the original code takes HotpotQA's everywhere.
        validated: whether any validated answer decides that, or the first alone.

    Raises:
        InputError: a sample has no answer or several, or no reference.
    """
    return [_answer(sample, human or {}, rules, validated) for sample in samples]


def _answer(sample: Sample, human: Mapping[str, bool], rules: QaRules, validated: bool) -> QaAnswer:
    golds = golds_of(sample)
    if len(sample.answers) != 1 or not golds:
        raise InputError(
            f"sample {sample.id}: expected one answer and a reference, got {len(sample.answers)} and "
            f"{'one' if golds else 'none'}; give the file that was judged"
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
