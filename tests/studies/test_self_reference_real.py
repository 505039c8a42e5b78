"""Both studies on real answers of five models to 420 MMLU-Pro questions, with judges that need no model."""

import gzip
import json

import pytest

from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.records import Judgment, LabelVerdict, PairVerdict, SelfAnswer
from judgelm.studies.self_reference import self_reference_study
from judgelm.studies.self_reference_answers import JudgeRuns
from judgelm.studies.ssr import SsrOptions, ssr_study
from judgelm.studies.truth_file import AnswerTruth, PairTruth
from tests.support.studies import table

HOW = Resampling(resamples=300)
JUDGES = ("gemini-1.5-pro-002", "Meta-Llama-3_1-70B-Instruct")
AGENTS = ("Meta-Llama-3_1-8B-Instruct", "Mistral-7B-Instruct-v0.2", "Qwen1.5-7B-Chat")


@pytest.fixture(scope="module")
def questions(shared_data):
    with gzip.open(shared_data / "mmlu_pro" / "mmlu_pro_outputs_420.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def letter(question, model):
    return question["outputs"][model]["l2"]


def test_a_judge_that_only_compares_with_its_own_answer(questions):
    truths, runs = {}, {judge: {"cot": {}, "guided": {}} for judge in JUDGES}
    for question in questions:
        for agent in AGENTS:
            key, answered = f"{question['question_id']}/{agent}", letter(question, agent)
            truths[key] = AnswerTruth(
                id=key, agent=agent, dataset="MMLU-Pro", truth=answered == question["answer"],
                question=str(question["question_id"]), answer=question["answer"],
            )  # fmt: skip
            for judge in JUDGES:
                own = letter(question, judge)
                for method, label in (("cot", "correct"), ("guided", "correct" if answered == own else "incorrect")):
                    runs[judge][method][key] = Judgment(
                        sample_id=key, mode="correctness", verdict=LabelVerdict(label=label), shown=(),
                        self_answers=(SelfAnswer(text="", answer=own),),
                    )  # fmt: skip
    result = self_reference_study([JudgeRuns(judge=name, **runs[name]) for name in JUDGES], truths, HOW)

    guided = [row for row in table(result, "f1-by-own-answer") if row["method"] == "self-reference"]
    assert [row["f1_right"].value for row in guided] == [1.0, 1.0]
    assert [row["f1_wrong"].value for row in guided] == [0.0, 0.0]  # a right agent never gives the judge's wrong answer
    # "correct" whatever is asked: J = A, so that A determines J
    partial = table(result, "partial-correlation")
    assert [row["r_gj_given_a"] is None for row in partial] == [True, False, True, False]
    assert all(row["r_gj_given_a"].value > 0.5 for row in partial if row["r_gj_given_a"])
    [over] = [row for row in table(result, "overconfidence-cot") if row["judge"] == JUDGES[0]]
    right = sum(one.truth for one in truths.values()) / len(truths)
    assert over["MMLU-Pro"].value == pytest.approx(1 - right)


def test_agreement_of_real_answers_is_calibrated(questions):
    models = (*JUDGES, *AGENTS)
    truths, runs = {}, ({}, {})
    for question in questions:
        key = str(question["question_id"])
        answers = [letter(question, model) for model in models]
        truths[key] = PairTruth(id=key, winner=1, answer=question["answer"], category=question["category"])
        commonest = max(dict.fromkeys(answers), key=lambda one: (one is not None, answers.count(one)))
        for place, winner in enumerate((1, 1 if commonest == question["answer"] else 2)):
            runs[place][key] = Judgment(
                sample_id=key, mode="ssr", verdict=PairVerdict(winner=winner), shown=(),
                self_answers=tuple(SelfAnswer(text="", answer=one) for one in answers),
            )  # fmt: skip
    result = ssr_study(*runs, truths, SsrOptions(resampling=HOW))

    curve = [(row["agreement"], row["right"].value) for row in table(result, "calibration") if row["n"] >= 20]
    assert [share for _, share in curve] == sorted(share for _, share in curve)
    slices = [row for row in table(result, "four-slices") if row["tau"] == 0.8]
    assert [row["always"].value for row in slices] == [1.0, 0.0, 1.0, 0.0]  # it follows its reference
    precision = [row["gate_precision"] for row in table(result, "every-tau")]
    assert all(isinstance(one, Estimate) for one in precision)
    assert len(table(result, "categories")) == 14
