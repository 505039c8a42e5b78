"""Self-reference: the study's tables by hand, and on real answers of five models to 420 MMLU-Pro questions."""

import gzip
import json

import pytest

from judgelm.errors import InputError
from judgelm.metrics.resampling import Estimate
from judgelm.records import Judgment, LabelVerdict, SelfAnswer
from judgelm.studies.self_reference import JudgeQuality, crossover, rank_correlation, self_reference_study
from judgelm.studies.self_reference_answers import JudgeRuns, judged_answers, own_correct
from judgelm.studies.truth_file import AnswerTruth
from tests.support.studies import FAILURE, HOW, judged_pair, table, value


def answered(key, label, *answers):
    """A judgment and the judge's own answers; without a label it failed."""
    verdict, failure = (LabelVerdict(label=label), None) if label else (None, FAILURE)
    solves = tuple(SelfAnswer(text="...", answer=answer) for answer in answers)
    return Judgment(sample_id=key, mode="correctness", verdict=verdict, shown=(), failure=failure, self_answers=solves)


def run(text):
    """One letter for each judgment: c correct, i incorrect, - failed."""
    labels = {"c": "correct", "i": "incorrect"}
    return {str(key): answered(str(key), labels.get(char)) for key, char in enumerate(text)}


def answer_truth(key="1", **fields):
    return AnswerTruth(**({"id": key, "agent": "small", "dataset": "X", "truth": True} | fields))


def truths(truth, own, datasets="X" * 12):
    known = {"1": True, "0": False, "?": None}
    truths = {}
    for key, (right, mine, dataset) in enumerate(zip(truth, own, datasets, strict=False)):
        truths[str(key)] = answer_truth(str(key), dataset=dataset, truth=known[right], judge_correct=known[mine])
    return truths


# the first eight are D_J+, four agents right and four wrong; the last four D_J-, two and two
TRUTH = "111100001100"
OWN = "111111110000"
COT = "cccicciicccc"
GUIDED = "cccciiiiciic"


def study(**runs):
    return self_reference_study([JudgeRuns(judge="big", **runs)], truths(TRUTH, OWN), HOW)


def test_f1_by_own_answer():
    [cot, guided] = table(study(cot=run(COT), guided=run(GUIDED)), "f1-by-own-answer")
    # CoT, D_J+: TP 3, FN 1, FP 2: 6/9; D_J-: TP 2, FP 2: 4/6
    assert (value(cot["f1_right"]), value(cot["f1_wrong"]), value(cot["gap"])) == (6 / 9, 4 / 6, 0.0)
    # guided, D_J+: all right; D_J-: TP 1, FN 1, FP 1: 2/4
    assert (value(guided["f1_right"]), value(guided["f1_wrong"]), value(guided["gap"])) == (1.0, 0.5, 0.5)
    assert (guided["n_right"], guided["n_wrong"]) == (8, 4)


def test_the_four_ways_and_what_self_reference_changes():
    result = study(cot=run(COT), guided=run(GUIDED))
    cot = table(result, "four-way-split")[:4]
    assert [(row["n"], value(row["accuracy"])) for row in cot] == [(4, 0.75), (4, 0.5), (2, 1.0), (2, 0.0)]
    assert [value(row["own_class_f1"]) for row in cot] == pytest.approx([1.5 / 1.75, 1 / 1.5, 1.0, 0.0])
    [change] = table(result, "change-by-self-reference")
    assert change["n"] == 12
    assert [value(cell) for key, cell in change.items() if key.startswith("accuracy")] == [0.25, 0.5, -0.5, 0.5]
    assert value(change["f1_wrong"]) == pytest.approx(0.5 - 4 / 6)


def test_overconfidence_by_data_set_and_over_all():
    runs = [JudgeRuns(judge="big", cot=run("c-cc"))]
    result = self_reference_study(runs, truths("1100", "1111", "XXYY"), HOW)
    [row] = table(result, "overconfidence-cot")
    # X: the failure is out, 1/1 - 1/1; Y: 2/2 - 0; all: 3/3 - 1/3
    assert (value(row["X"]), value(row["Y"]), value(row["all_data_sets"])) == (0.0, 1.0, pytest.approx(2 / 3))
    runs = [JudgeRuns(judge="strict", cot=run("ii")), JudgeRuns(judge="lax", cot=run("cc"))]
    result = self_reference_study(runs, truths("10", "11"), HOW)
    assert [row["judge"] for row in table(result, "overconfidence-cot")] == ["lax", "strict"]  # the most of it first


def test_correlations_bands_and_gain():
    result = study(cot=run(COT), guided=run(GUIDED))
    rows = table(result, "partial-correlation")
    assert [row["method"] for row in rows] == ["CoT", "self-reference"]
    # guided: J is right on all of D_J+ and on one of two in each part of D_J-. n 12, sums G 8, J 10, A 6, products
    # GJ 8, GA 4, JA 5: r_GA = r_JA = 0, r_GJ = (96 - 80) / sqrt((96 - 64) (120 - 100))
    correlations = [value(rows[1][key]) for key in ("r_gj_given_a", "r_ga", "r_ja")]
    assert (correlations, rows[1]["band"]) == (pytest.approx([16 / (32 * 20) ** 0.5, 0.0, 0.0]), "strong")
    # CoT: J right on 5 of 8 and on 2 of 4: GJ 5, JA 5, sum 7, r_GJ = (60 - 56) / sqrt(32 * 35),
    # r_JA = (60 - 42) / sqrt(36 * 35), partial = r_GJ / sqrt(1 - r_JA^2)
    r_gj, r_ja = 4 / (32 * 35) ** 0.5, 18 / (36 * 35) ** 0.5
    assert value(rows[0]["r_gj_given_a"]) == pytest.approx(r_gj / (1 - r_ja**2) ** 0.5)
    [gain] = table(result, "partial-correlation-gain")
    assert value(gain["gain"]) == pytest.approx(value(gain["guided"]) - value(gain["cot"]))
    assert "weak in 1, moderate in 0, strong in 0, and undefined in 0 of 1 cases" in result.findings[0]
    assert "strong in 1, and undefined in 0 of 1 cases" in result.findings[1]


def test_a_judge_that_answers_everything_right_has_no_correlation_and_a_reason():
    result = self_reference_study([JudgeRuns(judge="big", cot=run("ccii"))], truths("1010", "1111"), HOW)
    [row] = table(result, "partial-correlation")
    assert (row["r_gj_given_a"], row["band"], row["remark"][:11]) == (None, "undefined", "constant: G")
    assert "undefined in 1" in result.findings[0]


def test_failures_and_unknown_own_answers_are_counted_and_left_out():
    known = truths("1100", "1?01")
    runs = [JudgeRuns(judge="big", cot={**run("c-ic"), "x": run("c")["0"]})]
    result = self_reference_study(runs, known, HOW)
    counted = [result.counts[name] for name in ("judgments", "judged", "failed", "without truth")]
    assert counted == [5, 3, 1, 1]
    assert (result.counts["own answer known from the truth file"], result.counts["own answer unknown"]) == (3, 1)
    [quality] = table(result, "judgment-quality")
    assert (quality["n"], quality["failed"], value(quality["generation_accuracy"])) == (3, 1, pytest.approx(2 / 3))
    assert any("1 of 5 judgments failed" in warning for warning in result.warnings)


def test_own_answers_of_the_guided_run_serve_the_cot_run_too():
    guided = {key: answered(key, "correct", answer) for key, answer in (("0", "4"), ("1", "5"))}
    known = {key: answer_truth(key, answer="4") for key in ("0", "1")}
    result = self_reference_study([JudgeRuns(judge="big", cot=run("ci"), guided=guided)], known, HOW)
    rows = [(row["method"], row["n_right"], row["n_wrong"]) for row in table(result, "f1-by-own-answer")]
    assert rows == [("CoT", 1, 1), ("self-reference", 1, 1)]


def test_choosing_the_judge_that_answers_best():
    own = {"0": {"a": True, "b": True}, "1": {"a": True, "b": False}, "2": {"a": False, "b": False}}
    known = {key: answer_truth(key, truth=key != "2", judge_correct=own[key]) for key in own}
    runs = [JudgeRuns(judge="a", cot=run("cic")), JudgeRuns(judge="b", cot=run("cci"))]
    [row] = table(self_reference_study(runs, known, HOW), "judge-selection")
    # a answers 2/3, its F1: TP 1, FN 1, FP 1: 2/4; b answers 1/3, its F1 is 1
    assert (row["chosen"], row["best"], row["place"]) == ("a", "b", 2)
    assert (value(row["chosen_f1"]), value(row["regret"]), row["mean_f1"]) == (0.5, 0.5, 0.75)
    assert (row["spearman"], row["spearman_interval"]) == (None, None)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        # least squares: means 0.55 and 0.05; slope (0.0625 + 0.0025 + 0.0025 + 0.0625) / 0.13 = 1; 0 at 0.5
        ([(0.3, -0.2), (0.6, 0.1), (0.5, 0.0), (0.8, 0.3)], (2, 0.6, 0.5, pytest.approx(0.5))),
        ([], (0, None, None, None)),
        ([(0.5, 0.1)], (1, 0.5, None, None)),
        ([(0.3, 0.1), (0.5, 0.2), (0.9, -0.1)], (2, None, 0.9, None)),  # the most accurate loses, the line falls
        ([(0.5, 0.1), (0.5, 0.2), (0.5, 0.3)], (3, 0.5, None, None)),  # accuracies alike: no line
    ],
)
def test_crossover_is_where_every_judge_gains_from(points, expected):
    result = crossover(points)
    assert (result.gaining, result.from_accuracy, result.last_without, result.line) == expected


def test_rank_correlation_needs_five_judges_and_an_order_that_is_not_all_the_same():
    def correlation(generation, f1):
        estimates = [Estimate(value=value, low=value, high=value, n=9) for value in f1]
        pairs = zip(generation, estimates, strict=True)
        return rank_correlation([JudgeQuality(judge="", generation=share, f1=estimate) for share, estimate in pairs])

    # ranks 1 2 3 4 5 against 2 1 3 4 5: 1 - 6 * 2 / (5 * 24) = 0.9
    result = correlation((0.1, 0.2, 0.3, 0.4, 0.5), (0.2, 0.1, 0.3, 0.4, 0.5))
    assert (result.value, result.n) == (pytest.approx(0.9), 5)
    assert correlation((0.1, 0.2, 0.3, 0.4), (0.1, 0.2, 0.3, 0.4)) is None
    assert correlation([0.5] * 6, [x / 10 for x in range(6)]) is None


def test_own_answers_come_from_the_truth_file_or_else_from_the_solves():
    runs = JudgeRuns(judge="big", guided={"1": answered("1", "correct", "18")})
    assert own_correct(runs, answer_truth(judge_correct={"big": False}, answer="18")) == (False, "truth file")
    assert own_correct(runs, answer_truth(judge_correct=False, answer="18")) == (False, "truth file")
    assert own_correct(runs, answer_truth(judge_correct={"other": False}, answer="18")) == (True, "solves")
    plain, twice = answered("1", "correct"), answered("1", "correct", "17", "18")
    runs = JudgeRuns(judge="big", cot={"1": plain}, guided={"1": twice})
    assert own_correct(runs, answer_truth(answer="18")) == (False, "solves")  # the first solve is the reference
    nothing = JudgeRuns(judge="big", cot={"1": answered("1", "correct", None)})
    assert own_correct(nothing, answer_truth(answer="18")) == (False, "no answer extracted")
    assert own_correct(nothing, answer_truth()) == (None, "unknown")
    assert own_correct(JudgeRuns(judge="big"), answer_truth(answer="18")) == (None, "unknown")


@pytest.mark.parametrize(
    ("judgment", "finding"),
    [(judged_pair("1", 1), "label answers as correct"), (answered("x", "correct"), "'x' and '1'")],
)
def test_verdicts_of_other_modes_and_of_other_answers_are_rejected(judgment, finding):
    with pytest.raises(InputError, match=finding):
        judged_answers(JudgeRuns(judge="big", cot={judgment.sample_id: judgment}), "cot", {"1": answer_truth()})


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
                    runs[judge][method][key] = answered(key, label, letters[judge])
    result = self_reference_study([JudgeRuns(judge=name, **runs[name]) for name in JUDGES], truths, HOW)

    # a right agent never gives the judge's wrong answer
    for row in table(result, "f1-by-own-answer")[1::2]:
        assert (row["method"], value(row["f1_right"]), value(row["f1_wrong"])) == ("self-reference", 1.0, 0.0)
    # "correct" whatever is asked: J = A, so that A determines J
    partial = [row["r_gj_given_a"] for row in table(result, "partial-correlation")]
    assert [correlation and correlation.value > 0.5 for correlation in partial] == [None, True] * 2
    [over] = [row for row in table(result, "overconfidence-cot") if row["judge"] == JUDGES[0]]
    assert over["MMLU-Pro"].value == pytest.approx(1 - sum(truth.truth for truth in truths.values()) / len(truths))
