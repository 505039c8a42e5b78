"""Judges that think, from the command line: what is written, counted and shown."""

import json

import pytest

REPLY = "<think>\\nHm.\\n</think>\\n\\n8 6"


@pytest.fixture
def pairs(tmp_path):
    rows = [{"id": str(i), "question": "q", "answer_1": "a", "answer_2": "b", "winner": 1} for i in range(3)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "pairs.jsonl"


def judge(cli, pairs, *options, reply=REPLY):
    out = pairs.with_name("out.jsonl")
    options = (*options, "--max-failure-rate", "1", "--engine", "scripted", "--model", reply)
    return out, cli("judgelm-batch", pairs, "-o", out, *options)


def test_thinking_is_kept_apart_counted_and_shown(cli, pairs):
    out, (code, printed, error) = judge(cli, pairs, "--thinking", "on", "--json", pairs.with_name("run.json"))
    assert code == 0, error
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["shown"][0]["text"], row["shown"][0]["thinking"]) for row in rows] == [("8 6", "Hm.")] * 3
    assert "replies with thinking" in printed + error
    assert "3 of 3, 3 characters on average" in printed + error
    counts = json.loads(pairs.with_name("run.json").read_text())
    assert (counts["thinking"], counts["shown"], counts["thinking_characters"]) == (3, 3, 9)
    _, shown, _ = cli("judgelm", "eval", out, "--labels", pairs, "--bootstrap", "100", "--json", pairs.with_name("e"))
    assert "3 of 3 judgments with thinking, 3 characters a prompt" in shown
    found = json.loads(pairs.with_name("e").read_text())
    assert (found["counts"]["thinking"], found["mean_thinking_characters"]) == (3, 3.0)
    cli("judgelm", "report", out, "--labels", pairs, "--bootstrap", "100", "-o", pairs.with_name("report.html"))
    assert '<th scope="row">With thinking</th><td class="number">3</td>' in pairs.with_name("report.html").read_text()


def test_a_run_that_asks_for_thinking_is_another_run(cli, pairs):
    judge(cli, pairs, "--thinking", "on")
    _, (code, printed, error) = judge(cli, pairs, "--thinking", "off")
    assert code == 1
    assert "thinking" in printed + error
    _, (code, _, _) = judge(cli, pairs, "--thinking", "on")
    assert code == 0


def test_thinking_without_room_is_a_failure_that_says_what_to_do(cli, pairs):
    out, (code, _, _) = judge(cli, pairs)
    failure = json.loads(out.read_text().splitlines()[0])["failure"]
    assert code == 0
    assert failure["code"] == "truncated"
    assert failure["why"].endswith("judge with --thinking on, or off if it can")
