"""`judgelm canary`, and `--canary` of `judgelm-batch` and `judgelm serve`."""

import json

import pytest

SCRIPTED = ("--engine", "scripted", "--model")


@pytest.fixture
def canary(cli, tmp_path):
    path = tmp_path / "canary.json"
    code, _, err = cli("judgelm", "canary", "record", "-o", path, *SCRIPTED, "8 6", "--limit", "5")
    assert code == 0, err
    assert "5 pairs in both orders, 0 failed, 5 with P(first better)" in " ".join(err.split())
    return path


def test_the_same_judge_ends_with_0(cli, canary):
    code, out, _ = cli("judgelm", "canary", "check", canary, *SCRIPTED, "8 6")
    assert code == 0
    assert out.startswith("same: all verdicts and probabilities of 5 pairs are as recorded.")


def test_another_judge_ends_with_3_and_says_what_differs(cli, canary):
    code, out, _ = cli("judgelm", "canary", "check", canary, *SCRIPTED, "6 8", "--json", "-")
    assert code == 3
    check = json.loads(out)
    assert check["drifted"] is True
    assert check["probabilities"]["size"]["value"] == 1.0
    assert "model.sha" in check["identity"]
    code, out, err = cli("judgelm", "canary", "check", canary, *SCRIPTED, "6 8", "-q")
    assert (code, out) == (3, "")
    assert "drifted: P(first better) moved by 1.0000" in " ".join(err.split())


def test_limits_can_be_given_for_one_check(cli, canary):
    code, _, _ = cli(
        "judgelm", "canary", "check", canary, *SCRIPTED, "6 8", "--tolerance", "1", "--max-changed", "1", "-q"
    )
    assert code == 0


def test_mistakes_end_with_1(cli, canary, tmp_path):
    code, _, err = cli("judgelm", "canary", "record", "-o", canary, *SCRIPTED, "8 6")
    assert code == 1
    assert "exists already; add --overwrite" in " ".join(err.split())
    (tmp_path / "other.json").write_text("{}")
    code, _, err = cli("judgelm", "canary", "check", tmp_path / "other.json", *SCRIPTED, "8 6")
    assert code == 1
    assert "no canary of judgelm" in " ".join(err.split())


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"id": "1", "question": "q", "answer_1": "a", "answer_2": "b"}\n')
    return path


def test_a_batch_run_refuses_a_judge_that_drifted(cli, canary, pairs, tmp_path):
    out = tmp_path / "run.jsonl"
    code, _, err = cli("judgelm-batch", pairs, "-o", out, *SCRIPTED, "6 8", "--canary", canary)
    assert code == 3
    assert not out.exists()
    assert "--on-drift warn continues anyway" in " ".join(err.split())
    code, _, err = cli("judgelm-batch", pairs, "-o", out, *SCRIPTED, "6 8", "--canary", canary, "--on-drift", "warn")
    assert code == 0
    assert "drifted:" in err
    assert out.exists()


def test_a_batch_run_goes_on_with_the_same_judge(cli, canary, pairs, tmp_path):
    code, _, err = cli("judgelm-batch", pairs, "-o", tmp_path / "run.jsonl", *SCRIPTED, "8 6", "--canary", canary)
    assert code == 0
    assert "same: all verdicts" in " ".join(err.split())


def test_a_canary_is_of_one_judge(cli, canary, pairs, tmp_path):
    code, _, err = cli("judgelm-batch", pairs, "-o", tmp_path / "run.jsonl", "--cascade", "a,b", "--canary", canary)
    assert code == 1
    assert "--cascade has two" in " ".join(err.split())


def test_a_server_refuses_a_judge_that_drifted(cli, canary):
    code, _, err = cli("judgelm", "serve", "6 8", "--engine", "scripted", "--port", "0", "--canary", canary)
    assert code == 3
    assert "drifted:" in err


def test_a_judge_with_prompts_of_its_own_is_compared_by_its_verdicts(cli, tmp_path):
    pandalm = ("--engine", "scripted", "--card", "pandalm", "--model")
    path = tmp_path / "pandalm.json"
    code, _, err = cli("judgelm", "canary", "record", "-o", path, *pandalm, "1", "--limit", "5")
    assert code == 0, err
    assert "0 with P(first better)" in " ".join(err.split())
    code, out, _ = cli("judgelm", "canary", "check", path, *pandalm, "1")
    assert (code, out.split(":")[0]) == (0, "same by its verdicts")
    # "1" in both orders and "2" in both orders are ties alike: the verdict of each order tells them apart
    code, out, _ = cli("judgelm", "canary", "check", path, *pandalm, "2")
    assert (code, out.split(" (")[0]) == (3, "drifted: 5 of 5 verdicts changed")
