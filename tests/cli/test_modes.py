"""`judgelm-batch --mode`: other ways of judging than pairs."""

import json


def rows(path, *found):
    path.write_text("".join(json.dumps(row) + "\n" for row in found))
    return path


def test_a_row_that_lacks_what_the_mode_needs_is_rejected_and_the_rest_judged(cli, tmp_path):
    pairs = rows(
        tmp_path / "in.jsonl",
        {"id": "1", "question": "2+2?", "answer": "It is 4"},
        {"id": "2", "question": "Which?", "answer": "B", "options": ["only one"]},
        {"id": "3", "question": "2+3?", "answers": ["5", "6"]},
    )
    out = tmp_path / "out.jsonl"
    command = ("judgelm-batch", pairs, "-o", out, "--engine", "scripted", "--model", "[[Correct]]")
    code, _, err = cli(*command, "--mode", "correctness", "--max-failure-rate", "1")
    assert code == 0, err
    assert "judging: mode correctness, template self-reference" in err
    [judged] = [json.loads(line) for line in out.read_text().splitlines()]
    assert (judged["id"], judged["verdict"]) == ("1", {"kind": "label", "label": "correct"})
    rejects = [json.loads(line) for line in (tmp_path / "out.rejects.jsonl").read_text().splitlines()]
    assert ["expected 2 to 26 texts" in rejects[0]["reason"], "expected 1 answer" in rejects[1]["reason"]] == [
        True,
        True,
    ]


def test_own_answers_of_one_run_serve_another(cli, tmp_path):
    pairs = rows(tmp_path / "in.jsonl", {"id": "1", "question": "2+2?", "answers": ["It is 4", "It is 5"]})
    common = ("--engine", "scripted", "--model", "so it is A.\n[[1]]", "--mode", "ssr")
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    code, _, err = cli("judgelm-batch", pairs, "-o", first, *common)
    assert code == 0, err
    own = json.loads(first.read_text())["solves"]
    assert len(own) == 5
    other = ("--mode-arg", "when=always", "--mode-arg", "tau=0.6", "--self-answers", first)
    code, _, err = cli("judgelm-batch", pairs, "-o", second, *common, *other)
    assert code == 0, err
    again = json.loads(second.read_text())
    assert again["solves"] == own
    # two orders were judged and nothing was solved: the solves' tokens are missing
    assert again["completion_tokens"] < json.loads(first.read_text())["completion_tokens"]


def test_an_option_of_another_mode_is_refused(cli, tmp_path):
    pairs = rows(tmp_path / "in.jsonl", {"id": "1", "question": "q", "answer": "a"})
    command = ("judgelm-batch", pairs, "-o", tmp_path / "o.jsonl", "--engine", "scripted", "--model", "x")
    code, _, err = cli(*command, "--mode", "correctness", "--both-orders")
    assert code == 1
    assert "mode correctness: unknown option both_orders; it has: chat" in " ".join(err.split())


def test_modes_are_listed_and_one_modes_options_shown(cli):
    code, out, _ = cli("judgelm", "modes")
    assert code == 0
    assert "ssr" in out
    assert "2 answers" in out
    code, out, _ = cli("judgelm", "modes", "ssr")
    assert code == 0
    assert "least agreement for the gate" in " ".join(out.split())
    assert "0.8" in out
    code, _, err = cli("judgelm", "modes", "srr")
    assert code == 1
    assert "did you mean ssr?" in err
