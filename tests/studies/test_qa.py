"""QA-Judge's tables from a few answers, by hand."""

import pytest
from scipy.stats import pearsonr

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import InputError
from judgelm.modes.qa import QaCorrectness
from judgelm.records import Judgment, LabelVerdict, Sample, Unparsed
from judgelm.runs.runner import judge
from judgelm.studies.pair_labels import by_id
from judgelm.studies.qa import QaOptions, prompt_spread, qa_study
from judgelm.studies.qa_scores import QaRun, qa_answers
from tests.support.studies import HOW, graded, table, value


def sample(key, answer="other", model="m", kind="name", source=None):
    metadata = {"data_set": "hotpotqa", "answer_type": kind, "source_id": source or key}
    texts = {"question": f"question {key}?", "answers": (answer,), "reference": "gold"}
    return Sample(id=key, answer_models=(model,), metadata=metadata, **texts)


def judgment(key, sign):
    """`C` correct, `I` incorrect, `E` an exact match, `?` unreadable."""
    if sign == "?":
        return Judgment(sample_id=key, mode="qa", verdict=None, shown=(), failure=Unparsed("off_grammar", "hm"))
    verdict = LabelVerdict(label="incorrect" if sign == "I" else "correct")
    by = "exact_match" if sign == "E" else "judge"
    return Judgment(sample_id=key, mode="qa", verdict=verdict, shown=(), decided_by=by)


def run_of(name, labels, variant="initial"):
    return QaRun(judge=name, variant=variant, judgments={key: judgment(key, sign) for key, sign in labels.items()})


def names(result):
    return {part.name for part in (*result.tables, *result.figures)}


def study(samples, runs, human=None, **options):
    return qa_study(qa_answers(samples, human), runs, QaOptions(resampling=HOW, **options))


# a matches exactly; b overlaps (F1 of "gold ring" with "gold": 2 * 1/2 / (3/2) = 2/3); c and d do not
FOUR = [sample("a", "Gold."), sample("b", "gold ring"), sample("c"), sample("d")]


def test_scores_are_exact_matches_and_what_the_judge_calls_correct():
    result = study(FOUR, [run_of("qwen", {"a": "E", "b": "C", "c": "I", "d": "I"})])
    [row] = table(result, "scores")
    assert (row["data_set"], row["model"], row["answers"]) == ("hotpotqa", "m", 4)
    assert (row["em"].value, row["f1"].value) == (1 / 4, pytest.approx((1 + 2 / 3) / 4))
    assert (row["judge_qwen"].value, row["judge_qwen"].n, result.counts["exact_matches"]) == (2 / 4, 4, 1)
    assert names(result) == {"scores", "types", "types-correct", "judges", "authors-failures"}


def test_the_gap_to_em_is_reported_and_different_rules_are_noticed():
    result = study(FOUR, [run_of("qwen", {"a": "E", "b": "C", "c": "E", "d": "I"})])
    # EM 1/4, judge 3/4
    assert any("gap between a judge and EM is +50.0 points" in finding for finding in result.findings)
    assert any("1 answers were decided by exact matches" in warning for warning in result.warnings)


def test_a_failed_judgment_is_left_out_and_counted_or_incorrect_on_request():
    runs = [run_of("qwen", {"a": "E", "b": "C", "c": "?"})]
    result = study(FOUR, runs)
    [row] = table(result, "scores")
    assert (row["judge_qwen"].value, row["judge_qwen"].n) == (1.0, 2)
    [judged] = table(result, "judges")
    assert [judged[key] for key in ("exact_match", "judge", "not_judged", "off_grammar")] == [1, 1, 1, 1]
    assert result.counts["without_label"] == 2
    texts = ("1 of 4 answers have no label", "1 of 4 answers were not judged")
    assert all(text in warning for text, warning in zip(texts, result.warnings[:2], strict=True))
    [row] = table(study(FOUR, runs, failures="as_incorrect"), "scores")
    assert (row["judge_qwen"].value, row["judge_qwen"].n) == (2 / 4, 4)


def test_failures_are_counted_as_the_authors_count_them_in_a_table_of_their_own():
    samples = [sample("a", "gold"), *(sample(key) for key in "bcdefg")]
    replies = {
        "b": "<ans> CORRECT </ans>",
        "c": "<ans> correct </ans>",  # judgelm reads it, their code knows capitals alone
        "d": "<ans> YOUR LABEL </ans> so <ans> CORRECT </ans>",  # first tags: neither; last on a line: correct
        "e": "CORRECT",  # without tags the first rule takes the whole reply, the other nothing
        "f": "It depends.",
    }
    engine = ScriptedEngine({f"question {key}?|gold|other": text for key, text in replies.items()})
    judged = by_id(judge(samples[:6], QaCorrectness(), engine))
    human = dict.fromkeys("abcde", True) | {"f": False}
    first, last = table(study(samples, [QaRun(judge="qwen", judgments=judged)], human), "authors-failures")
    for row in (first, last):
        assert [row[key] for key in ("asked", "correct", "incorrect", "neither", "unlabelled")] == [5, 2, 0, 3, 1]
    # theirs: a, b and e of six are correct (a, b and d by the other rule); judgelm leaves f out: all five
    # g was not judged
    assert (first["score"].value, first["score"].n, last["score"].value) == (3 / 6, 6, 3 / 6)
    assert (first["own_score"].value, first["own_score"].n) == (1.0, 5)
    # people call all but f correct: against 1 1 0 0 1 0 (a to f) that is 0.447 = 1 / sqrt(5)
    assert first["correlation"].value == pytest.approx(pearsonr([1, 1, 1, 1, 1, 0], [1, 1, 0, 0, 1, 0])[0])
    assert first["own_correlation"] is None  # without f judgelm's labels are all the same


def test_judging_all_is_compared_with_exact_match_first():
    # of the exact matches a and e the judge refuses e: EM first 3/5, all 2/5, gap 1/5
    samples = [*FOUR, sample("e", "the gold")]
    everything = run_of("qwen", {"a": "C", "b": "C", "c": "I", "d": "I", "e": "I"})
    cascade = run_of("llama", {"a": "E", "b": "C", "c": "I", "d": "I", "e": "E"})
    [row] = table(study(samples, [everything, cascade]), "false-and-all")
    shares = [row[key].value for key in ("em_first", "all", "gap", "exact_correct")]
    assert (row["judge"], shares) == ("qwen", pytest.approx([3 / 5, 2 / 5, 1 / 5, 1 / 2]))


def eight(model):
    """Eight answers of a model: 0 matches exactly, 1 and 2 overlap by 2/3, the others do not."""
    texts = ["gold", "gold ring", "a gold coin", *["other"] * 5]
    return [sample(f"{model}{i}", text, model, source=str(i)) for i, text in enumerate(texts)]


HUMAN = [1, 1, 0, 1, 0, 0, 0, 1]
PEOPLE = {f"{model}{i}": bool(label) for model in "mn" for i, label in enumerate(HUMAN)}
JUDGED = {f"m{i}": sign for i, sign in enumerate("ECCIIIIC")}


def test_correlation_with_people_by_model_and_averaged():
    labels = JUDGED | {f"n{i}": "C" for i in range(8)}
    result = study([*eight("m"), *eight("n")], [run_of("qwen", labels)], PEOPLE)
    first, second, average = table(result, "human-correlation")
    # m: people 11010001, judge 11100001: both 3, people alone 1, judge alone 1, neither 3:
    # phi = (3*3 - 1*1) / sqrt(4*4*4*4) = 1/2
    assert (first["qwen"].value, second["qwen"]) == (pytest.approx(1 / 2), None)  # the second calls all correct
    assert (average["model"], average["qwen"].value) == ("average", pytest.approx(1 / 2))
    # EM is 10000000: both 1, people alone 3, neither 4: phi = (1*4 - 3*0) / sqrt(4*4*1*7)
    assert first["em"].value == second["em"].value == pytest.approx(4 / 112**0.5)
    # F1 of 0.5 and more: 11100000: both 2, people alone 2, alone 1, neither 3: (2*3 - 2*1) / sqrt(4*4*3*5)
    assert first["f1_of_0_5_and_more"].value == pytest.approx(4 / 240**0.5)


def test_f1_thresholds_follow_scipy():
    result = study(eight("m"), [run_of("qwen", JUDGED)], PEOPLE)
    row, average = table(result, "f1-thresholds")
    assert row["f1_from_0_6"].value == pytest.approx(pearsonr(HUMAN, [1, 1, 1, 0, 0, 0, 0, 0]).statistic)
    # from 0.7 on only the exact match is left
    assert row["f1_from_0_7"].value == pytest.approx(pearsonr(HUMAN, [1, 0, 0, 0, 0, 0, 0, 0]).statistic)
    assert average["f1_from_0_8"] == row["f1_from_0_8"]  # of one model


def test_prompts_are_compared_with_maximum_mean_and_variance():
    exact = {f"m{i}": "EC"[i > 0] if label else "I" for i, label in enumerate(HUMAN)}  # correlation 1; JUDGED 1/2
    result = study(eight("m"), [run_of("qwen", JUDGED), run_of("qwen", exact, "zero-shot")], PEOPLE)
    [row] = table(result, "prompts")
    assert [row["prompt_initial"].value, row["prompt_zero_shot"].value] == pytest.approx([1 / 2, 1])
    # mean 3/4; variance 2 * (1/4)^2 / (2 - 1) = 1/8
    assert [row["maximum"], row["mean"], row["variance"]] == pytest.approx([1, 3 / 4, 1 / 8])
    assert len(table(result, "judges")) == 2
    assert list(table(result, "scores")[0])[-1] == "judge_qwen"  # the first prompt stands for the judge
    several = [run_of("qwen", JUDGED), run_of("llama", JUDGED), run_of("qwen", exact, "zero-shot")]
    assert list(table(study(eight("m"), several), "scores")[0])[-2:] == ["judge_qwen", "judge_llama"]


@pytest.mark.parametrize(
    ("row", "maximum", "average", "variance"),
    [
        ((0.653, 0.795, 0.667, 0.762, 0.702), 0.795, 0.716, 0.0037),
        ((0.750, 0.819, 0.742, 0.820, 0.765), 0.820, 0.779, 0.0014),
        ((0.847, 0.877, 0.850, 0.909, 0.854), 0.909, 0.867, 0.0007),
    ],
)
def test_the_papers_table_7_has_the_sample_variance(row, maximum, average, variance):
    result = prompt_spread(row)
    assert (result[0], round(result[1], 3), round(result[2], 4)) == (maximum, average, variance)


def test_by_type_among_answers_that_do_not_match():
    samples = [sample("a", "gold", kind="job"), sample("b", kind="job"), sample("c", kind="job")]
    samples += [sample("d", kind="date"), sample("e", "gold", kind="year")]
    result = study(samples, [run_of("qwen", {"a": "E", "b": "C", "c": "I", "d": "I", "e": "E"})])
    rows = {row["type"]: row for row in table(result, "types")}
    assert {key: (row["answers"], row["em_false"]) for key, row in rows.items()} == {
        "job": (3, 2), "date": (1, 1), "year": (1, 0),
    }  # fmt: skip
    shares = {kind: value(row["called_correct"]) for kind, row in rows.items()}
    assert shares == {"job": 1 / 2, "date": 0, "year": None}  # every answer of a year matches
    [figure] = [figure for figure in result.figures if figure.name == "types-correct"]
    assert [row.label for row in figure.rows] == ["job", "date"]


def test_types_use_the_judge_that_agrees_best_with_people():
    exact = {f"m{i}": "C" if label else "I" for i, label in enumerate(HUMAN)}
    for options, correlation in (({}, 1), ({"types_judge": "qwen"}, 1 / 2)):
        result = study(eight("m"), [run_of("qwen", JUDGED), run_of("llama", exact)], PEOPLE, **options)
        assert table(result, "types")[0]["correlation"].value == pytest.approx(correlation)


def panel(rows):
    """Judges m, s, j1 .. j5 over the answers of model m, one row of labels per answer."""
    samples = [sample(str(i), model="m") for i in range(len(rows))]
    judges = ["m", "s", "j1", "j2", "j3", "j4", "j5"]
    runs = [run_of(name, {str(i): row[place] for i, row in enumerate(rows)}) for place, name in enumerate(judges)]
    return samples, runs


def test_self_and_sibling_preference_at_three_thresholds():
    samples, runs = panel(["CIIIIII", "CIIICII", "CIICCII", "ICIIIII", "CCIIIII", "IIIIIII", "?CIIIII", "IIIIIII"])
    result = study(samples, runs, siblings={"m": "s"})
    [own] = table(result, "self-preference")
    # 7 answers with all labels. m alone: 0; with one other: 1, 4; with two: 2
    assert (own["judge"], own["others"], own["answers"], own["left_out"]) == ("m", 6, 7, 1)
    thresholds = [f"threshold_{percent}" for percent in (100, 83, 67)]
    assert [own[threshold].value for threshold in thresholds] == pytest.approx([1 / 7, 3 / 7, 4 / 7])
    [sibling] = table(result, "sibling-preference")
    # s alone: 3; with m beside it: 4 too
    assert [sibling[threshold].value for threshold in thresholds] == pytest.approx([1 / 7, 2 / 7, 2 / 7])


def test_a_match_is_not_a_preference_and_the_own_judge_can_have_another_name():
    samples, runs = panel(["CIIIIII", "CIIIIII"])
    samples[1] = sample("1", "gold", model="m")
    [row] = table(study(samples, runs, own={"m": "s"}), "self-preference")
    assert (row["judge"], row["answers"], row["threshold_100"].value) == ("s", 1, 0)
    # fewer than six judges
    samples, runs = panel(["CIIIIII"])
    result = study(samples, runs[:4])
    assert "against 3 other judges" in result.warnings[-1]
    assert "self-preference" not in names(study(samples, runs[1:]))


def test_validated_answers_and_each_sets_own_rules():
    def of(answer, reference, references, data_set="hotpotqa", **options):
        metadata = {"data_set": data_set, "references": references}
        row = Sample(id="d", question="How many?", answers=(answer,), reference=reference, metadata=metadata)
        [answer] = qa_answers([row], **options)
        return answer

    result = of("1e3", "7", ["7", "1000"], "drop")
    assert (result.own.exact, result.gate.exact) == (True, False)
    assert (result.answer_type, result.model) == ("number", "not given")
    assert of("b", "a", ["b"]).gate.exact
    assert not of("b", "a", ["b"], validated=False).gate.exact


def test_replies_without_a_verdict_are_failures_or_incorrect_as_the_mode_reads_them():
    keys = ("a?|gold|Gold.", "b?|gold|gold ring", "c?|gold|other", "d?|gold|other")
    words = dict(zip(keys, ("CORRECT", "CORRECT", "INCORRECT", "?"), strict=True))
    engine = ScriptedEngine({f"question {key}": f"<ans>{word}</ans>" for key, word in words.items()})
    modes = {"first": QaCorrectness(), "all": QaCorrectness(judge_all=True, labels="original")}
    runs = [QaRun(judge=name, judgments=by_id(judge(FOUR, mode, engine))) for name, mode in modes.items()]
    result = study(FOUR, runs)
    [row] = table(result, "scores")
    first, everything = row["judge_first"], row["judge_all"]
    assert (first.value, first.n, everything.value, everything.n) == (2 / 3, 3, 2 / 4, 4)
    assert [row["judge"] for row in table(result, "false-and-all")] == ["all"]
    assert table(result, "judges")[1]["read_as_incorrect"] == 1
    assert any("1 replies contain neither verdict" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("samples", "runs", "options", "finding"),
    [
        ([], [run_of("q", {"a": "C"})], {}, "0 answers and 1 runs"),
        (FOUR, [], {}, "4 answers and 0 runs"),
        (FOUR, [run_of("q", {"a": "C"}), run_of("q", {"b": "C"})], {}, "q has two runs"),
        (FOUR, [run_of("q", {"z": "C"})], {}, "no judgment id matches an answer"),
        (FOUR, [run_of("q", {"a": "C"})], {"siblings": {"m": "s"}}, "no run by judge 's'; available: q"),
        (FOUR, [run_of("q", {"a": "C"})], {"types_judge": "s"}, "no run by judge 's'"),
    ],
)
def test_what_cannot_be_studied_is_refused(samples, runs, options, finding):
    with pytest.raises(InputError, match=finding):
        study(samples, runs, **options)


def test_answers_and_judgments_of_another_kind_are_refused():
    with pytest.raises(InputError, match="sample x: expected one answer and a reference, got 2 answer"):
        qa_answers([Sample(id="x", question="?", answers=("a", "b"), reference="c")])
    with pytest.raises(InputError, match="judgment a: mode grade does not label"):
        study(FOUR, [QaRun(judge="q", judgments={"a": graded("a", 3, "grade")})])
