"""`judgelm-batch --cascade`, and what `eval` and `report` say of it."""

import json

import pytest


@pytest.fixture
def scripts(tmp_path):
    """The small judge calls every second pair a tie, which leaves it to the large one, whose word is `9 2`."""
    small = {f"q{i}|a|b": "5 5\n" if i % 2 else "9 2\n" for i in range(6)}
    (tmp_path / "small.json").write_text(json.dumps(small))
    (tmp_path / "large.json").write_text(json.dumps({f"q{i}|a|b": "9 2\n" for i in (1, 3, 5)}))
    return f"{tmp_path}/small.json,{tmp_path}/large.json"


@pytest.fixture
def judged(cli, pairs, tmp_path, scripts):
    out = tmp_path / "out.jsonl"
    path = pairs(6, scores=[8, 6])
    code, _, said = cli("judgelm-batch", path, "-o", out, "--engine", "scripted", "--cascade", scripts)
    assert code == 0, said
    return path, out, said


def test_the_summary_says_what_was_spared_and_a_rerun_judges_and_adds_nothing(cli, judged, scripts):
    path, out, said = judged
    assert "3 pairs go to" in said
    assert "pairs that the large judge was not shown" in said
    assert "50.0\u00a0% of 6" in said
    assert "100.0\u00a0% of 3 that both gave" in said

    before = {file: file.read_bytes() for file in out.parent.glob("out*.jsonl")}
    assert len(before) == 3
    code, _, said = cli("judgelm-batch", path, "-o", out, "--engine", "scripted", "--cascade", scripts)
    assert code == 0
    assert "resuming: 6 samples are already judged" in said
    assert "resuming: 3 samples are already judged" in said
    assert {file: file.read_bytes() for file in before} == before


def test_eval_compares_the_judges_with_the_labels(cli, judged, tmp_path):
    path, out, _ = judged
    code, printed, _ = cli("judgelm", "eval", out, "--labels", path, "--json", tmp_path / "found.json")
    assert code == 0
    for row in ("agreement of the small judge alone", "agreement of the cascade", "by deciding judge", "large judge"):
        assert row in printed
    found = json.loads((tmp_path / "found.json").read_text())["cascade"]["agreement"]
    # the label is 1 throughout: the small judge has 3 of 6, both together all
    assert (found["small"]["value"], found["cascade"]["value"], found["gain"]["value"]) == (0.5, 1.0, 0.5)
    assert (found["small_on_passed"]["value"], found["large_on_passed"]["n"]) == (0.0, 3)


def test_the_report_has_it_too_and_says_when_the_small_judges_run_is_missing(cli, judged, tmp_path):
    path, out, _ = judged
    page = tmp_path / "report.html"
    assert cli("judgelm", "report", out, "--labels", path, "-o", page)[0] == 0
    assert "<h2>Cascade</h2>" in page.read_text()
    assert "agreement of the small judge alone" in page.read_text()
    (tmp_path / "out.small.jsonl").unlink()
    assert cli("judgelm", "report", out, "--labels", path, "-o", page)[0] == 0
    assert "agreement of the small judge alone" not in page.read_text()
    assert "own run was not beside this one" in page.read_text()


def test_two_real_judges_save_operations(cli, pairs, tmp_path, tiny_judge, tiny_adapters):
    out = tmp_path / "out.jsonl"
    judges = ("--cascade", f"{tiny_judge},{tiny_adapters[0]}", "--cascade-band", "0.0,1.0")
    options = ("--template", "judgelm-compact", "--engine", "transformers", "--max-failure-rate", "1")
    code, _, said = cli("judgelm-batch", pairs(4), "-o", out, *judges, *options)
    assert code == 0, said
    assert "operations saved" in said
    counts = json.loads((tmp_path / "out.run.json").read_text())["cascade"]["counts"]
    assert counts["small_parameters"] == counts["large_parameters"] > 1000  # an adapter is merged into its base


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        (["--cascade", "one"], "expected two models, the smaller first, as SMALL,LARGE"),
        (["--cascade", "a,b", "--model", "c"], "--model does not go with --cascade"),
        (["--cascade", "a,b", "--adapter", "c"], "--adapter does not go with --cascade"),
        (["--cascade", "a,b", "--cascade-band", "wide"], "expected LOW,HIGH, such as 0.3,0.7"),
        (["--model", "a", "--cascade-band", "0.3,0.7"], "--cascade-band needs --cascade"),
    ],
)
def test_usage_errors_end_with_1_and_a_sentence(cli, pairs, tmp_path, arguments, finding):
    code, _, said = cli("judgelm-batch", pairs(1), "-o", tmp_path / "out.jsonl", "--engine", "scripted", *arguments)
    assert code == 1
    assert finding in said
    assert list(tmp_path.glob("out*")) == []
