"""`judgelm canary`, and `--canary` of `judgelm-batch` and `judgelm serve`."""

import json

import pytest

SCRIPTED = ("--engine", "scripted", "--model")


def flat(text):
    return " ".join(text.split())


@pytest.fixture
def canary(cli, tmp_path):
    path = tmp_path / "canary.json"
    code, _, err = cli("judgelm", "canary", "record", "-o", path, *SCRIPTED, "8 6", "--limit", "5")
    assert code == 0, err
    assert "5 pairs in both orders, 0 failed, 5 with P(first better)" in flat(err)
    return path


def test_the_same_judge_ends_with_0(cli, canary):
    code, out, _ = cli("judgelm", "canary", "check", canary, *SCRIPTED, "8 6")
    assert code == 0
    assert out.startswith("same: all verdicts and probabilities of 5 pairs are as recorded.")


def test_another_judge_ends_with_3_and_says_what_differs(cli, canary):
    command = ("judgelm", "canary", "check", canary, *SCRIPTED, "6 8")
    code, out, _ = cli(*command, "--json", "-")
    assert code == 3
    check = json.loads(out)
    assert check["drifted"] is True
    assert check["probabilities"]["size"]["value"] == 1.0
    assert "model.sha" in check["identity"]
    code, out, err = cli(*command, "-q")
    assert (code, out) == (3, "")
    assert "drifted: P(first better) moved by 1.0000" in flat(err)
    assert cli(*command, "--tolerance", "1", "--max-changed", "1", "-q")[0] == 0


def test_mistakes_end_with_1(cli, pairs, canary, tmp_path):
    code, _, err = cli("judgelm", "canary", "record", "-o", canary, *SCRIPTED, "8 6")
    assert (code, "exists already; add --overwrite" in flat(err)) == (1, True)
    (tmp_path / "other.json").write_text("{}")
    code, _, err = cli("judgelm", "canary", "check", tmp_path / "other.json", *SCRIPTED, "8 6")
    assert (code, "no canary of judgelm" in flat(err)) == (1, True)
    command = ("judgelm-batch", pairs(1), "-o", tmp_path / "run.jsonl", "--cascade", "a,b", "--canary", canary)
    code, _, err = cli(*command)
    assert (code, "--cascade has two" in flat(err)) == (1, True)


def test_a_batch_run_refuses_a_judge_that_drifted(batch, canary, pairs, tmp_path):
    out = tmp_path / "out.jsonl"
    code, _, err = batch(pairs(1), "--canary", canary, reply="6 8")
    assert (code, out.exists()) == (3, False)
    assert "--on-drift warn continues anyway" in flat(err)
    code, _, err = batch(pairs(1), "--canary", canary, "--on-drift", "warn", reply="6 8")
    assert (code, out.exists(), "drifted:" in err) == (0, True, True)
    code, _, err = batch(pairs(1), "--canary", canary, "--overwrite", reply="8 6")
    assert (code, "same: all verdicts" in flat(err)) == (0, True)


def test_a_server_refuses_a_judge_that_drifted(cli, canary):
    code, _, err = cli("judgelm", "serve", "6 8", "--engine", "scripted", "--port", "0", "--canary", canary)
    assert code == 3
    assert "drifted:" in err


def test_a_judge_with_prompts_of_its_own_is_compared_by_its_verdicts(cli, tmp_path):
    pandalm = ("--engine", "scripted", "--card", "pandalm", "--model")
    path = tmp_path / "pandalm.json"
    code, _, err = cli("judgelm", "canary", "record", "-o", path, *pandalm, "1", "--limit", "5")
    assert code == 0, err
    assert "0 with P(first better)" in flat(err)
    code, out, _ = cli("judgelm", "canary", "check", path, *pandalm, "1")
    assert (code, out.split(":")[0]) == (0, "same by its verdicts")
    # "1" in both orders and "2" in both orders are ties alike: the verdict of each order tells them apart
    code, out, _ = cli("judgelm", "canary", "check", path, *pandalm, "2")
    assert (code, out.split(" (")[0]) == (3, "drifted: 5 of 5 verdicts changed")
