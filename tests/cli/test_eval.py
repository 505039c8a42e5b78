"""`judgelm eval` and `judgelm report` on published figures and on judgelm's runs."""

import json

import pytest

from judgelm.data.training_questions import question_hash, write_hashes
from tests.support.jsonl_files import write_rows

SCENARIOS = ("clean_no_bad", "perfect", "always_first")
NAMES = ("accuracy", "precision", "recall", "f1")
POSITION = {  # the original authors' names
    "consistency": "consistency", "perfer_before_rate": "toward_first", "perfer_after_rate": "toward_second",
    "delta_bias": "delta",
}  # fmt: skip


def numbers(cli, *arguments):
    code, out, err = cli("judgelm", "eval", *arguments, "--json", "-", "--bootstrap", "100")
    assert code == 0, err
    return json.loads(out)


@pytest.mark.parametrize(
    ("file", "percent"),
    [
        ("gpt-3.5-turbo-testset-v1.json", [71.07, 58.79, 57.36, 57.55]),
        ("pandalm-7b-testset-v1.json", [66.77, 57.38, 57.50, 57.43]),
    ],
)
def test_pandalms_published_figures(cli, shared_data, file, percent):
    folder = shared_data / "pandalm"
    result = numbers(cli, folder / file, "--labels", folder / "testset-v1.json", "--failures", "as_tie")
    scores = [result["as_tie"][name]["value"] for name in NAMES]
    assert [round(100 * score, 2) for score in scores] == percent
    assert result["counts"]["joined"] == 999


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_original_authors_metric_code_is_matched(cli, shared_data, tmp_path, scenario):
    stored = json.loads((shared_data / "expected" / "judgelm_metrics.json").read_text())["scenarios"][scenario]
    files = {"labels": "gt_text", "given": "seq_text", "swapped": "rev_text"}
    for name, field in files.items():
        key = "text" if name == "labels" else "pred_text"
        rows = [
            {"question_id": i, key: item[field]} | ({"score": item["gt_parsed"]} if name == "labels" else {})
            for i, item in enumerate(stored["items"])
        ]
        write_rows(tmp_path / f"{name}.jsonl", rows)
    result = numbers(
        cli, tmp_path / "given.jsonl", "--reversed", tmp_path / "swapped.jsonl", "--labels", tmp_path / "labels.jsonl",
        "--parser", "original", "--failures", "as_tie",
    )["as_tie"]  # fmt: skip
    expected = stored["expected_filter_true"]
    for name in NAMES:
        assert result[name]["value"] == pytest.approx(expected[name], abs=1e-9)
    for original, ours in POSITION.items():
        assert result["position"][ours]["value"] == pytest.approx(expected[original], abs=1e-9)
    assert result["n"] == expected["total_num"]


def test_infinite_and_nan_scores_of_the_originals_parser_end_in_valid_json(cli, tmp_path):
    replies = ["inf 5", "5 inf", "nan 5", "8 6", "inf inf", "-inf nan"]
    rows = [{"question_id": i, "pred_text": text} for i, text in enumerate(replies)]
    labels = [{"question_id": i, "text": "8 6", "score": [8, 6]} for i in range(len(replies))]
    for name, lines in (("given", rows), ("swapped", rows), ("labels", labels)):
        write_rows(tmp_path / f"{name}.jsonl", lines)
    files = (tmp_path / "given.jsonl", "--reversed", tmp_path / "swapped.jsonl", "--labels", tmp_path / "labels.jsonl")
    code, out, err = cli("judgelm", "eval", *files, "--parser", "original", "--json", "-", "--bootstrap", "100")
    assert code == 0, err
    result = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    # first, second, tie, first, tie, tie; the labels say first
    assert result["counts"]["failed"] == 0
    assert result["excluded"]["accuracy"]["value"] == pytest.approx(2 / 6)
    # the same replies to the swapped answers: only the ties are consistent
    assert result["excluded"]["position"]["consistency"]["value"] == pytest.approx(3 / 6)
    assert result["scores"]["not_finite"] == 5  # all but "8 6"
    listed = {row["sample_id"]: (row["judged"], row["scores"]) for row in result["disagreements"]}
    assert listed["2"] == ("tie", [None, 5.0])


@pytest.fixture
def judged(batch, tmp_path):
    """Four pairs judged in both orders by a script: right, flipped, wrong, unreadable."""
    rows = [
        {"question_id": str(i), "question_body": f"q{i}", "answer1_body": "a", "answer2_body": "b",
         "score": [8, 6], "text": "8 6\nwhy", "metadata": {"kind": "copy", "vices": ["wrong", "empty"]}}
        for i in range(4)
    ]  # fmt: skip
    write_rows(tmp_path / "pairs.jsonl", rows)
    script = {
        "q0|a|b": "8 6", "q0|b|a": "6 8",  # first, first
        "q1|a|b": "8 6", "q1|b|a": "9 5",  # first, then second: mean 6.5 against 7.5
        "q2|a|b": "5 6", "q2|b|a": "6 5",  # second, second
        "q3|a|b": "8 6", "q3|b|a": "dunno",
    }  # fmt: skip
    (tmp_path / "script.json").write_text(json.dumps(script))
    batch(tmp_path / "pairs.jsonl", "--both-orders", reply=tmp_path / "script.json")
    return tmp_path


@pytest.mark.parametrize(
    ("trained_on", "sentence"),
    [
        (["new"], "0 of 4 questions are in the judge's training set"),
        (["Q1!", "q3"], "warning: 2 of 4 questions are in the judge's training set (2 of 4 pairs)"),
    ],
)
def test_questions_that_the_judge_was_trained_on_are_counted(cli, judged, trained_on, sentence):
    write_hashes(judged, {question_hash(question) for question in trained_on})
    manifest = json.loads((judged / "out.run.json").read_text())
    for provenance in manifest["provenance"].values():
        provenance["model"] = {"path": "owner/base", "adapter": str(judged)}
    (judged / "out.run.json").write_text(json.dumps(manifest))
    code, out, _ = cli("judgelm", "eval", judged / "out.jsonl", "-l", judged / "pairs.jsonl")
    assert (code, sentence in " ".join(out.split())) == (0, True)


@pytest.fixture
def again(batch, judged):
    """Judge the four pairs with other options; return the run file."""

    def run(*options):
        out = judged / "again.jsonl"
        batch(judged / "pairs.jsonl", "--both-orders", *options, reply=judged / "script.json", out=out)
        return out

    return run


@pytest.mark.parametrize(
    ("judging", "evaluating", "row", "protocol"),
    [
        # first, first, second, first in the given order; first, second (6.5 : 7.5), second, failed by the mean
        ([], [], [3, 0, 1], "given order"),
        ([], ["--order-rule", "mean"], [1, 1, 2], "mean"),
        # first, tie, second, tie (failed)
        ([], ["--protocol", "pandalm"], [1, 2, 1], "a tie if the orders conflict"),
        (["--order-rule", "tie"], [], [1, 2, 1], "(order rule tie)"),
        (["--distribution"], ["--order-rule", "probability"], [1, 2, 1], "within 0.05 of 0.5"),
        (["--tie-threshold", "0.2"], ["--order-rule", "probability"], [1, 2, 1], "within 0.2 of 0.5"),
        (
            ["--tie-threshold", "0.2"], ["--order-rule", "probability", "--tie-threshold", "0.1"], [1, 2, 1],
            "within 0.1 of 0.5",
        ),
    ],
)  # fmt: skip
def test_orders_become_one_label_as_the_options_or_the_run_say(cli, judged, again, judging, evaluating, row, protocol):
    if "--tie-threshold" in judging:
        judging = [*judging, "--order-rule", "probability"]
    result = numbers(cli, again(*judging), "--labels", judged / "pairs.jsonl", *evaluating)
    assert result["as_tie"]["confusion"][0] == row  # of the label that all have: first, tie, second
    assert protocol in result["protocol"]


def test_exclusions_and_other_order_rules_are_reported(cli, judged, again):
    labels = ("--labels", judged / "pairs.jsonl")
    result = numbers(cli, judged / "out.jsonl", *labels)
    assert (result["excluded"]["accuracy"]["value"], result["counts"]["failed"]) == (0.75, 0)
    assert result["other_rules"]["mean"]["excluded"]["value"] == pytest.approx(1 / 3)
    # pair 3 is unreadable when swapped: it has a label, no consistency, and is counted and listed as a failure
    assert (result["half_failed"], result["failure_codes"]) == (["3"], {"off_grammar": 1})
    assert [result["groups"][name][0]["value"] for name in ("kind", "vice")] == ["copy", "empty / wrong"]
    code, out, _ = cli("judgelm", "eval", again("--distribution"), *labels)
    assert code == 0
    for line in (
        "failures: unparseable 1",
        "judgments with one failed order (they count for agreement, not for consistency): 1",
        "agreement, given order",
        "agreement, mean of both orders",
        "by kind",
        "Brier score",
        "0 tied labels, 1 pairs without a probability",
    ):
        assert line in out


def test_a_report_is_one_file_with_the_pairs_in_it(cli, judged):
    out = judged / "report.html"
    asked = (judged / "out.jsonl", "--labels", judged / "pairs.jsonl", "--bootstrap", "100")
    code, _, err = cli("judgelm", "report", *asked, "-o", out)
    assert (code, f"report to {out}" in err) == (0, True)
    assert cli("judgelm", "report", *asked, "-o", out, "-q", "--json", judged / "r.json") == (0, "", "")
    assert json.loads((judged / "r.json").read_text()) == numbers(cli, *asked[:3])
    assert cli("judgelm", "eval", *asked, "--quiet") == (0, "", "")
    page = out.read_text()
    assert page.startswith("<!DOCTYPE html>") or page.startswith("<!doctype html>")
    assert "dunno" in page
    assert '<tr class="lead"><th scope="row">Agreement, given order</th>' in page
    assert '<th scope="row">Agreement, mean of both orders</th>' in page
    assert "samples/s" in page


def test_a_report_compares_two_judges(cli, judged):
    other = judged / "other.jsonl"
    other.write_bytes((judged / "out.jsonl").read_bytes())
    asked = ("judgelm", "report", judged / "out.jsonl", "-l", judged / "pairs.jsonl", "-o", judged / "two.html")
    code, _, errors = cli(*asked, "--baseline", other)
    assert code == 0, errors
    page = (judged / "two.html").read_text()
    assert "out is not significantly different from other" in page
    assert '<a href="#comparison">' in page
    code, _, errors = cli(*asked, "--baseline", judged / "nowhere.jsonl")
    assert (code, "nowhere.jsonl: no such file" in errors) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        (["nowhere.jsonl", "--labels", "pairs.jsonl"], "no such file"),
        (["out.jsonl", "--labels", "nowhere.jsonl"], "no such file"),
        (["out.jsonl", "--labels", "other.jsonl"], "none of the ids in this file was judged"),
        (["pairs.jsonl", "--labels", "pairs.jsonl"], "no result"),
        (["out.jsonl", "--labels", "pairs.jsonl", "--scale", "ten"], "expected LOW-HIGH"),
        (["out.jsonl", "--labels", "nan.jsonl"], "finite numbers"),
        (["out.jsonl", "--labels", "pairs.jsonl", "--order-rule", "probability"], "judge again with --distribution"),
    ],
)
def test_invalid_evaluations_exit_with_1(cli, judged, monkeypatch, arguments, finding):
    monkeypatch.chdir(judged)
    other = {"id": "x", "question": "q", "answer_1": "a", "answer_2": "b", "winner": 1}
    (judged / "other.jsonl").write_text(json.dumps(other) + "\n")
    (judged / "nan.jsonl").write_text(json.dumps(other | {"scores": [float("nan"), 3]}) + "\n")
    if "--scale" in arguments:
        arguments = [argument.replace("out.jsonl", "results.jsonl") for argument in arguments]
        (judged / "results.jsonl").write_text('{"question_id": "0", "pred_text": "8 6"}\n')
    code, _, err = cli("judgelm", "eval", *arguments)
    assert code == 1
    assert finding in err
    assert "Traceback" not in err


def test_replies_parsed_anywhere_are_counted_separately(cli, tmp_path):
    replies = {"1": "8 6\nwhy", "2": "It is right.\n\nOutput: (9, 2)", "3": "It is right."}
    rows = [{"question_id": name, "pred_text": text} for name, text in replies.items()]
    write_rows(tmp_path / "replies.jsonl", rows)
    write_rows(tmp_path / "labels.jsonl", ({"id": name, "winner": 1} for name in replies))
    files = (tmp_path / "replies.jsonl", "--labels", tmp_path / "labels.jsonl")
    by_default, anywhere = (numbers(cli, *files, *more)["counts"] for more in ((), ("--parser", "anywhere")))
    assert (by_default["judged"], by_default["failed"], by_default["read_anywhere"]) == (1, 2, 0)
    assert (anywhere["judged"], anywhere["failed"], anywhere["read_anywhere"]) == (2, 1, 1)
    _, printed, _ = cli("judgelm", "eval", *files, "--parser", "anywhere", "--bootstrap", "100")
    assert "judgments parsed only with --parser anywhere (they count as judged): 1" in printed


REVIEWS = {"1": "8 6\nBetter.", "2": "8  6\nTwo blanks.", "3": "-1 5\nUnread.", "4": "5,9", "5": " 7 7"}
"""The original parser reads 1 and 4, and its evaluation drops 3; ours reads 1, 2, 4 and 5 as labels."""


def test_the_original_parser_reads_the_labels_too(cli, tmp_path):
    labels = write_rows(
        tmp_path / "labels.jsonl", ({"question_id": key, "text": text} for key, text in REVIEWS.items())
    )
    given = write_rows(tmp_path / "given.jsonl", ({"question_id": key, "pred_text": "8 6"} for key in REVIEWS))
    counts = [
        (result["counts"]["joined"], result["as_tie"]["accuracy"]["value"])
        for result in (numbers(cli, given, "-l", labels, "--parser", parser) for parser in ("original", "judgelm"))
    ]
    assert counts[0] == (2, 0.5)
    assert counts[1][0] > 2


@pytest.fixture
def swayed(cli, tmp_path):
    """Pairs, and a run in both orders by a judge that prefers the first answer: 8 to 2, then 9 to 2."""
    rows = [{"id": str(key), "question": f"q{key}", "answer_1": "a", "answer_2": "b"} for key in range(3)]
    pairs = write_rows(tmp_path / "pairs.jsonl", rows)
    script = {f"q{key}|a|b": "8 2" for key in range(3)} | {f"q{key}|b|a": "9 2" for key in range(3)}
    (tmp_path / "script.json").write_text(json.dumps(script))
    engine = ("--engine", "scripted", "--model", tmp_path / "script.json", "--both-orders", "-q")
    assert cli("judgelm-batch", pairs, "-o", tmp_path / "run.jsonl", *engine)[0] == 0
    return tmp_path


@pytest.mark.parametrize(("rule", "label"), [("as_judged", 2), ("given", 1), ("tie", "tie")])
def test_a_run_in_both_orders_gives_labels_by_an_order_rule(cli, swayed, rule, label):
    # means 5 and 5.5: the second wins; as given 8 to 2: the first; the orders conflict: a tie
    labels = write_rows(swayed / "labels.jsonl", ({"id": str(key), "winner": label} for key in range(3)))
    run = swayed / "run.jsonl"
    assert numbers(cli, run, "-l", labels, "--order-rule", rule)["excluded"]["accuracy"]["value"] == 1.0
    options = ("--label-order-rule", rule, "--order-rule", rule)
    assert numbers(cli, run, "-l", run, *options)["excluded"]["accuracy"]["value"] == 1.0
    other = numbers(cli, run, "-l", run, "--label-order-rule", rule, "--order-rule", "as_judged")
    assert other["excluded"]["accuracy"]["value"] == float(rule == "as_judged")


def test_a_label_order_rule_needs_a_run(cli, swayed):
    labels = write_rows(swayed / "labels.jsonl", [{"id": "0", "winner": 1}])
    code, _, err = cli("judgelm", "eval", swayed / "run.jsonl", "-l", labels, "--label-order-rule", "given")
    assert (code, "labels.jsonl" in err) == (1, True), err
