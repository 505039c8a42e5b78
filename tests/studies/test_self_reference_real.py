"""Self-reference on real answers of five models to 420 MMLU-Pro questions, with judges that need no model."""

import gzip
import json

import pytest

from judgelm.metrics.resampling import Resampling
from judgelm.records import Judgment, LabelVerdict, SelfAnswer
from judgelm.studies.self_reference import self_reference_study
from judgelm.studies.self_reference_answers import JudgeRuns
from judgelm.studies.truth_file import AnswerTruth
from tests.support.studies import table

HOW = Resampling(resamples=300)
JUDGES = ("gemini-1.5-pro-002", "Meta-Llama-3_1-70B-Instruct")
AGENTS = ("Meta-Llama-3_1-8B-Instruct", "Mistral-7B-Instruct-v0.2", "Qwen1.5-7B-Chat")


def test_a_judge_that_only_compares_with_its_own_answer(shared_data):
    with gzip.open(shared_data / "mmlu_pro" / "mmlu_pro_outputs_420.jsonl.gz", "rt", encoding="utf-8") as file:
        questions = [json.loads(line) for line in file]
    truths, runs = {}, {judge: {"cot": {}, "guided": {}} for judge in JUDGES}
    for question in questions:
        letters = {model: output["l2"] for model, output in question["outputs"].items()}
        shared = {"question": str(question["question_id"]), "answer": question["answer"], "dataset": "MMLU-Pro"}
        for agent in AGENTS:
            key = f"{question['question_id']}/{agent}"
            truths[key] = AnswerTruth(id=key, agent=agent, truth=letters[agent] == question["answer"], **shared)
            for judge in JUDGES:
                guided = "correct" if letters[agent] == letters[judge] else "incorrect"
                for method, label in (("cot", "correct"), ("guided", guided)):
                    runs[judge][method][key] = Judgment(
                        sample_id=key, mode="correctness", verdict=LabelVerdict(label=label), shown=(),
                        self_answers=(SelfAnswer(text="", answer=letters[judge]),),
                    )  # fmt: skip
    result = self_reference_study([JudgeRuns(judge=name, **runs[name]) for name in JUDGES], truths, HOW)

    guided = [row for row in table(result, "f1-by-own-answer") if row["method"] == "self-reference"]
    # a right agent never gives the judge's wrong answer
    assert [(row["f1_right"].value, row["f1_wrong"].value) for row in guided] == [(1.0, 0.0)] * 2
    # "correct" whatever is asked: J = A, so that A determines J
    partial = [row["r_gj_given_a"] for row in table(result, "partial-correlation")]
    assert [one is None or one.value > 0.5 for one in partial] == [True] * 4
    assert [one is None for one in partial] == [True, False, True, False]
    [over] = [row for row in table(result, "overconfidence-cot") if row["judge"] == JUDGES[0]]
    right = sum(one.truth for one in truths.values()) / len(truths)
    assert over["MMLU-Pro"].value == pytest.approx(1 - right)
