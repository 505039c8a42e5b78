"""Judges that only compare with their own published answer: self-reference at its limit.

No published file holds models' judgments of the published answers to GSM8K and MMLU-Pro, but each of these models
answered every question. A judge that calls an answer correct where it equals its own is as reliant on self-reference
as a judge can be, and needs no model. An answer or an own answer that cannot be extracted says `incorrect`.
"""

import csv
import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.findings.steps import enough
from judgelm.metrics.resampling import Resampling, share
from judgelm.parsing.short_answers import final_answer
from judgelm.records import Judgment, LabelVerdict, PairVerdict, SelfAnswer
from judgelm.studies.result import StudyResult
from judgelm.studies.self_reference import self_reference_study
from judgelm.studies.self_reference_answers import JudgeRuns
from judgelm.studies.ssr import SsrOptions, ssr_study
from judgelm.studies.truth_file import AnswerTruth, PairTruth

GSM8K_MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A question, the final answer of each model, and which of them are right."""

    id: str
    category: str
    gold: str
    answers: Mapping[str, str | None]
    right: Mapping[str, bool]


def gsm8k(data: Path) -> Iterator[Answered]:
    """Four solutions of each of 1,319 questions; the published file says which are right."""
    with gzip.open(data / "gsm8k/example_model_solutions.jsonl.gz", "rt", encoding="utf-8") as lines:
        for index, row in enumerate(map(json.loads, lines), start=1):
            yield Answered(
                id=f"gsm8k-{index}",
                category="GSM8K",
                gold=final_answer(row["ground_truth"], "number") or "",
                answers={model: final_answer(row[model]["solution"], "number") for model in GSM8K_MODELS},
                right={model: bool(row[model]["is_correct"]) for model in GSM8K_MODELS},
            )


def mmlu_pro(data: Path) -> Iterator[Answered]:
    """Five models' answers to 420 questions, by MMLU-Pro's own extraction."""
    with gzip.open(data / "mmlu_pro/mmlu_pro_outputs_420.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            answers = {model: output["l2"] for model, output in row["outputs"].items()}
            right = {model: answer == row["answer"] for model, answer in answers.items()}
            key = f"mmlu-pro-{row['question_id']}"
            yield Answered(id=key, category=row["category"], gold=row["answer"], answers=answers, right=right)


DATA_SETS = {"GSM8K": gsm8k, "MMLU-Pro": mmlu_pro}


def judged_correct(question: Answered, judge: str, agent: str) -> bool:
    """True if the judge's own answer equals the agent's."""
    return question.answers[judge] is not None and question.answers[judge] == question.answers[agent]


def comparing(data: Path) -> list[dict[str, Any]]:
    """For each model as a judge of the others: own accuracy, partial correlation and agreement with the truth."""
    rows = []
    for name, read in DATA_SETS.items():
        questions = list(read(data))
        for judge in questions[0].answers:
            rows.append({"on": name, "judge": judge, **_self_reference(questions, judge, name)})
    return rows


def _self_reference(questions: list[Answered], judge: str, name: str) -> dict[str, Any]:
    truths, guided = {}, {}
    for question in questions:
        for agent in question.answers.keys() - {judge}:
            key, own = f"{question.id}/{agent}", question.right[judge]
            label = "correct" if judged_correct(question, judge, agent) else "incorrect"
            truths[key] = AnswerTruth(
                id=key, agent=agent, dataset=name, truth=question.right[agent], question=question.id, judge_correct=own
            )
            guided[key] = Judgment(sample_id=key, mode="correctness", verdict=LabelVerdict(label=label), shown=())
    result = self_reference_study([JudgeRuns(judge=judge, guided=guided)], truths, Resampling())
    [correlation] = table(result, "partial-correlation")
    agree = [(guided[key].verdict == LabelVerdict(label="correct")) == truth.truth for key, truth in truths.items()]
    owned = [question.right[judge] for question in questions]
    return {
        "own": asdict(share(np.array(owned), None, Resampling())),
        "agreement": asdict(share(np.array(agree), [truth.question for truth in truths.values()], Resampling())),
        "r_gj": _figure(correlation["r_gj"]),
        "partial": _figure(correlation["r_gj_given_a"]),
        "overconfidence": _figure(table(result, "overconfidence-guided")[0][name]),
    }


def gates(data: Path) -> list[dict[str, Any]]:
    """The share of questions on which enough models agree, and that on which the commonest answer is right then."""
    rows = []
    for name, read in DATA_SETS.items():
        truths, runs = {}, {}
        for question in read(data):
            answers = tuple(SelfAnswer(text="", answer=answer) for answer in question.answers.values())
            verdict = PairVerdict(winner=1)
            run = Judgment(sample_id=question.id, mode="ssr", verdict=verdict, shown=(), self_answers=answers)
            truths[question.id] = PairTruth(id=question.id, winner=1, answer=question.gold, category=question.category)
            runs[question.id] = run
        options = SsrOptions(resampling=Resampling())
        for row in table(ssr_study(runs, runs, truths, options), "every-tau"):
            shares = {key: enough(_figure(row[key])) for key in ("gate_on_rate", "gate_precision")}
            rows.append({"on": name, "tau": row["tau"], "questions": len(truths), **shares})
    return rows


def write_ratings(data: Path, out: Path) -> Path:
    """MMLU-Pro's comparing judges as ratings: 2 for correct, 1 for incorrect; the truth stands in people's place."""
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["item", "dimension", "judge", "model", "score"])
        for question in mmlu_pro(data):
            for model in question.answers:
                writer.writerow([question.id, "correctness", "human", model, 1 + question.right[model]])
                for judge in question.answers:
                    score = 1 + judged_correct(question, judge, model)
                    writer.writerow([question.id, "correctness", judge, model, score])
    return out


def shared_errors(data: Path) -> list[dict[str, Any]]:
    """Of the questions that two models of MMLU-Pro both get wrong with an answer: the share with the same answer."""
    questions, rows = list(mmlu_pro(data)), []
    for first, second in combinations(questions[0].answers, 2):
        same = [
            question.answers[first] == question.answers[second]
            for question in questions
            if not (question.right[first] or question.right[second])
            and question.answers[first] is not None
            and question.answers[second] is not None
        ]
        rows.append({"first": first, "second": second, "same": asdict(share(np.array(same), None, Resampling()))})
    return rows


def table(result: StudyResult, name: str) -> list[dict[str, Any]]:
    """The rows of a table of a study."""
    [chosen] = [table for table in result.tables if table.name == name]
    keys = [column.key for column in chosen.columns]
    return [dict(zip(keys, row, strict=True)) for row in chosen.rows]


def _figure(estimate: Any) -> dict[str, Any] | None:
    return None if estimate is None else asdict(estimate)
