"""`judgelm-batch --cascade`, and a comparison of its runs."""

import json

import pytest


@pytest.fixture
def scripts(tmp_path):
    """The small judge calls every second pair a tie; the large one replies `9 2`."""
    small = {f"q{i}|a|b": "5 5\n" if i % 2 else "9 2\n" for i in range(6)}
    (tmp_path / "small.json").write_text(json.dumps(small))
    (tmp_path / "large.json").write_text(json.dumps({f"q{i}|a|b": "9 2\n" for i in (1, 3, 5)}))
    return f"{tmp_path}/small.json,{tmp_path}/large.json"


@pytest.fixture
def judged(cli, pairs, tmp_path, scripts):
    out = tmp_path / "out.jsonl"
    path = pairs(6, scores=[8, 6])
    code, _, output = cli("judgelm-batch", path, "-o", out, "--engine", "scripted", "--cascade", scripts)
    assert code == 0, output
    return path, out, output


def test_the_summary_counts_spared_pairs_and_a_rerun_is_a_no_op(cli, judged, scripts):
    path, out, output = judged
    assert "passing 3 pairs to" in output
    assert "pairs judged only by the small judge" in output
    assert "3 of 6" in output
    assert "3 of 3 with both verdicts" in output

    before = {file: file.read_bytes() for file in out.parent.glob("out*.jsonl")}
    assert len(before) == 3
    code, _, output = cli("judgelm-batch", path, "-o", out, "--engine", "scripted", "--cascade", scripts)
    assert code == 0
    assert "resuming: 6 samples have already been judged" in output
    assert "resuming: 3 samples have already been judged" in output
    assert {file: file.read_bytes() for file in before} == before


def test_eval_groups_by_the_deciding_judge_and_the_two_runs_are_compared(cli, judged, tmp_path):
    path, out, _ = judged
    code, printed, _ = cli("judgelm", "eval", out, "--labels", path)
    assert code == 0
    assert "by deciding judge" in printed
    assert "large judge" in printed
    both = (out.with_name("out.small.jsonl"), out, "--labels", path)
    code, _, output = cli("judgelm", "study", "compare-judges", *both, "-o", tmp_path / "compared")
    # the label is 1 throughout: the small judge has 3 of 6, both together all
    assert (code, "out.small 50.0" in output, "out 100.0" in output) == (0, True, True), output


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        (["--cascade", "one"], "expected two models as SMALL,LARGE"),
        (["--cascade", "a,b", "--model", "c"], "--model cannot be combined with --cascade"),
        (["--cascade", "a,b", "--adapter", "c"], "--adapter cannot be combined with --cascade"),
        (["--cascade", "a,b", "--cascade-band", "wide"], "expected LOW,HIGH, such as 0.3,0.7"),
        (["--model", "a", "--cascade-band", "0.3,0.7"], "--cascade-band requires --cascade"),
    ],
)
def test_usage_errors_exit_with_1(cli, pairs, tmp_path, arguments, finding):
    code, _, output = cli("judgelm-batch", pairs(1), "-o", tmp_path / "out.jsonl", "--engine", "scripted", *arguments)
    assert code == 1
    assert finding in output
    assert list(tmp_path.glob("out*")) == []
