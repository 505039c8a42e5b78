"""`judgelm-batch` from the outside, with the scripted engine."""

import json
import os

import pytest

from judgelm.runs.run_files import read_judgments

SCRIPTED = ("--engine", "scripted", "--model")


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_leaves_judgments_and_a_manifest(cli, pairs, tmp_path):
    code, _, err = cli("judgelm-batch", pairs(5), "-o", tmp_path / "out.jsonl", *SCRIPTED, "8 6\\n", "--both-orders")
    assert code == 0
    assert "question = question" in err  # the recognised fields are shown
    assert {row["id"] for row in rows_of(tmp_path / "out.jsonl")} == {f"p{i}" for i in range(5)}
    manifest = json.loads((tmp_path / "out.run.json").read_text())
    [session] = manifest["sessions"]
    assert (session["outcome"], session["judged"]) == ("finished", 5)
    assert manifest["fingerprint"]["template"]["id"] == "judgelm-v1"
    [provenance] = manifest["provenance"]
    assert {row["provenance"] for row in rows_of(tmp_path / "out.jsonl")} == {provenance}


def test_a_rerun_judges_nothing_twice(cli, pairs, tmp_path):
    command = ("judgelm-batch", pairs(5), "-o", tmp_path / "out.jsonl", *SCRIPTED, "8 6\\n")
    cli(*command, "--limit", 2)
    assert len(rows_of(tmp_path / "out.jsonl")) == 2
    code, _, err = cli(*command)
    assert code == 0
    assert "2 samples are already judged" in err
    assert len(rows_of(tmp_path / "out.jsonl")) == 5
    cli(*command)
    assert len(rows_of(tmp_path / "out.jsonl")) == 5


def test_a_torn_last_line_is_mended_and_its_sample_judged_again(cli, pairs, tmp_path):
    command = ("judgelm-batch", pairs(5), "-o", tmp_path / "out.jsonl", *SCRIPTED, "8 6\\n")
    cli(*command)
    whole = (tmp_path / "out.jsonl").read_bytes()
    (tmp_path / "out.jsonl").write_bytes(whole[:-40])
    code, _, err = cli(*command)
    assert code == 0
    assert "removed an incomplete last line" in err
    assert len(read_judgments(tmp_path / "out.jsonl")) == 5


def test_another_model_is_refused_with_both_sides_shown(cli, pairs, tmp_path):
    path = pairs(3)
    cli("judgelm-batch", path, "-o", tmp_path / "out.jsonl", *SCRIPTED, "8 6\\n")
    code, _, err = cli("judgelm-batch", path, "-o", tmp_path / "out.jsonl", *SCRIPTED, "7 6\\n", "--order-rule", "tie")
    assert code == 1
    assert "holds judgments of another run" in err
    assert 'mode.order_rule: there "mean", now "tie"' in err
    assert "model.sha: there" in err
    assert "--overwrite" in err
    assert len(rows_of(tmp_path / "out.jsonl")) == 3


def test_overwrite_starts_over(cli, pairs, tmp_path):
    path = pairs(3)
    cli("judgelm-batch", path, "-o", tmp_path / "out.jsonl", *SCRIPTED, "8 6\\n")
    code, *_ = cli("judgelm-batch", path, "-o", tmp_path / "out.jsonl", *SCRIPTED, "5 6\\n", "--overwrite")
    assert code == 0
    assert [row["verdict"]["winner"] for row in rows_of(tmp_path / "out.jsonl")] == [2, 2, 2]


def test_an_input_that_has_grown_goes_on_and_a_changed_one_is_refused(cli, pairs, tmp_path):
    path = pairs(3)
    command = ("judgelm-batch", path, "-o", tmp_path / "out.jsonl", *SCRIPTED, "8 6\\n")
    cli(*command)
    path.write_text(path.read_text() + '{"id": "new", "question": "q", "answer_1": "a", "answer_2": "b"}\n')
    assert cli(*command)[0] == 0
    assert len(rows_of(tmp_path / "out.jsonl")) == 4
    path.write_text(path.read_text().replace("q1", "changed"))
    code, _, err = cli(*command)
    assert code == 1
    assert "input" in err


def test_judgments_without_manifest_are_not_touched(cli, pairs, tmp_path):
    (tmp_path / "out.jsonl").write_text("somebody's work\n")
    code, _, err = cli("judgelm-batch", pairs(3), "-o", tmp_path / "out.jsonl", *SCRIPTED, "8 6\\n")
    assert code == 1
    assert "exists without out.run.json" in err
    assert (tmp_path / "out.jsonl").read_text() == "somebody's work\n"


def test_stdin_to_stdout(cli, pairs):
    stdin = pairs(3).read_bytes()
    code, out, _ = cli("judgelm-batch", "-", *SCRIPTED, "8 6\\n", stdin=stdin)
    assert code == 0
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["p0", "p1", "p2"]


def test_failures_are_counted_and_set_the_exit_code(cli, pairs, tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"q0|a|b": "8 6\n", "q1|a|b": "no\n", "q2|a|b": "80 6\n"}))
    command = ("judgelm-batch", pairs(4), "-o", tmp_path / "out.jsonl", *SCRIPTED, script)
    code, _, err = cli(*command)
    assert code == 2
    assert "unparseable 1" in err
    assert "out of range 1" in err
    assert "engine 1" in err
    failures = {row["id"]: row["failure"] and row["failure"]["code"] for row in rows_of(tmp_path / "out.jsonl")}
    assert failures == {"p0": None, "p1": "off_grammar", "p2": "out_of_range", "p3": "engine"}
    code, _, err = cli(*command)  # only p3 is judged again, but the earlier failures still stand
    assert code == 2
    assert "failed in earlier sessions" in err
    assert cli(*command, "--max-failure-rate", "0.75")[0] == 0  # 3 of 4 failed, over all sessions


def test_a_rerun_redoes_engine_failures_and_all_failures_only_when_asked(cli, pairs, tmp_path):
    path, out = pairs(3), tmp_path / "out.jsonl"
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"q0|a|b": "8 6\n", "q1|a|b": "no\n"}))
    command = ("judgelm-batch", path, "-o", out, *SCRIPTED, script, "--max-failure-rate", "1")
    cli(*command)
    assert len(rows_of(out)) == 3
    cli(*command)
    assert [row["id"] for row in rows_of(out)[3:]] == ["p2"]
    cli(*command, "--retry", "failed")
    assert sorted(row["id"] for row in rows_of(out)[4:]) == ["p1", "p2"]
    assert len(read_judgments(out)) == 3


def test_rejected_lines_are_kept_with_place_and_reason(cli, pairs, tmp_path):
    path = pairs(2)
    bad = [
        b'{"id": "x", "question": "q"}',
        b'{"torn',
        b"\xff\xfe",
        b'{"id": "p0", "question": "q", "answer_1": "a", "answer_2": "b"}',
        b'{"id": "n", "question": "q", "answer_1": 7, "answer_2": "b"}',
    ]
    path.write_bytes(path.read_bytes() + b"\n".join(bad) + b"\n")
    code, _, err = cli("judgelm-batch", path, "-o", tmp_path / "out.jsonl", *SCRIPTED, "8 6\\n")
    assert code == 2
    rejects = rows_of(tmp_path / "out.rejects.jsonl")
    assert [reject["line"] for reject in rejects] == [3, 4, 5, 6, 7]
    assert 'id "p0" appeared before' in rejects[3]["reason"]
    assert "expected text, got the number 7" in rejects[4]["reason"]
    assert "pairs.jsonl:3:" in err
    assert len(rows_of(tmp_path / "out.jsonl")) == 2


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        (["nowhere.jsonl", "-o", "out.jsonl", *SCRIPTED, "8 6"], "no such file"),
        (["{pairs}", "-o", "out.jsonl", *SCRIPTED, "8 6", "--self-answers", "nowhere.jsonl"], "no such file"),
        (
            ["{pairs}", "-o", "out.jsonl", "--model", "x", "--mode", "duel"],
            "mode 'duel' does not exist; available: pair",
        ),
        (["{pairs}", "-o", "out.jsonl", "--model", "x", "--engine", "vlm"], "engine 'vlm' does not exist"),
        (["{pairs}", "-o", "out.jsonl", "--engine", "scripted"], "the scripted engine has no default judge; name one"),
        (["{pairs}", "-o", "out.jsonl", "--model", ""], "the model's name is empty"),
        (["{pairs}", *SCRIPTED, "8 6"], "-o is missing"),
        (["{pairs}", "-o", "nowhere/out.jsonl", *SCRIPTED, "8 6"], "no such folder"),
        (["{pairs}", "-o", "out.csv", *SCRIPTED, "8 6"], "give it the ending .jsonl"),
        (["{pairs}", "-o", "folder.jsonl", *SCRIPTED, "8 6"], "is a folder; name a file in it"),
        (["{pairs}", "-o", "out.jsonl", *SCRIPTED, "8 6", "--template", "judgelm-v2"], "did you mean judgelm-v1"),
        (["{empty}", "-o", "out.jsonl", *SCRIPTED, "8 6"], "empty"),
        (["{pairs}", "-o", "out.jsonl", *SCRIPTED, "8 6", "--reference", "sometimes"], "sometimes"),
        (["{pairs}", "-o", "out.jsonl", *SCRIPTED, "8 6", "--config", "{bad_yaml}"], "unknown option modle"),
    ],
)
def test_usage_errors_end_with_1_and_a_sentence(cli, pairs, tmp_path, monkeypatch, arguments, finding):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "bad.yaml").write_text("modle: x\n")
    places = {"{pairs}": str(pairs(2)), "{empty}": "empty.jsonl", "{bad_yaml}": "bad.yaml"}
    code, out, err = cli("judgelm-batch", *(places.get(argument, argument) for argument in arguments))
    assert code == 1
    assert finding in err
    assert "Traceback" not in err
    assert out == ""


def test_a_config_file_gives_defaults_and_flags_go_before_it(cli, pairs, tmp_path):
    config = tmp_path / "batch.yaml"
    config.write_text("engine: scripted\nmodel: 8 6\nboth_orders: true\norder_rule: tie\n")
    code, *_ = cli("judgelm-batch", pairs(2), "-o", tmp_path / "out.jsonl", "--config", config, "--order-rule", "mean")
    assert code == 0
    mode = json.loads((tmp_path / "out.run.json").read_text())["fingerprint"]["mode"]
    assert (mode["both_orders"], mode["order_rule"]) == (True, "mean")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, a device that is always full")
def test_a_full_disk_stops_the_run_with_a_way_out(cli, pairs, tmp_path):
    (tmp_path / "out.jsonl").symlink_to("/dev/full")
    code, _, err = cli("judgelm-batch", pairs(2), "-o", tmp_path / "out.jsonl", *SCRIPTED, "8 6\\n")
    assert code == 1
    assert "No space left on device" in err
    assert "run the same command again" in err


def test_ten_megabytes_in_one_answer_pass(cli, tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"id": "1", "question": "q", "answer_1": "word " * 2_000_000, "answer_2": "b"}) + "\n")
    assert cli("judgelm-batch", path, "-o", tmp_path / "out.jsonl", *SCRIPTED, "8 6\\n")[0] == 0


def test_two_alpaca_eval_files_are_joined(cli, tmp_path):
    for name, outputs in (("model.json", ["a", "b"]), ("reference.json", ["c", "d"])):
        rows = [{"instruction": f"q{i}", "output": out, "generator": name} for i, out in enumerate(outputs)]
        (tmp_path / name).write_text(json.dumps(rows))
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"q0|a|c": "8 6\n", "q1|b|d": "6 8\n"}))
    out = tmp_path / "out.jsonl"
    code, *_ = cli("judgelm-batch", tmp_path / "model.json", tmp_path / "reference.json", "-o", out, *SCRIPTED, script)
    assert code == 0
    assert [row["verdict"]["winner"] for row in rows_of(out)] == [1, 2]


def test_quiet_prints_errors_only(cli, pairs, tmp_path):
    code, out, err = cli("judgelm-batch", pairs(2), "-o", tmp_path / "out.jsonl", *SCRIPTED, "8 6\\n", "--quiet")
    assert (code, out, err) == (0, "", "")
    again = cli("judgelm-batch", tmp_path / "pairs.jsonl", "-o", tmp_path / "out.jsonl", *SCRIPTED, "8 6\\n", "--quiet")
    assert again == (0, "", "")  # nor does it say that it resumes


def test_two_runs_cannot_write_one_file(cli, pairs, tmp_path):
    from judgelm.jsonl import Appender

    command = ("judgelm-batch", pairs(2), "-o", tmp_path / "out.jsonl", *SCRIPTED, "8 6\\n")
    cli(*command, "--limit", "1")
    with Appender(tmp_path / "out.jsonl"):
        code, _, err = cli(*command)
    assert code == 1
    assert "another process is writing this file" in err


def test_a_model_that_has_moved_is_the_same_model(cli, pairs, tmp_path, tiny_model):
    path, out = pairs(3), tmp_path / "out.jsonl"
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in tiny_model.iterdir():
        (moved / file.name).write_bytes(file.read_bytes())
    options = ("-o", out, "--template", "judgelm-compact", "--max-failure-rate", "1")
    assert cli("judgelm-batch", path, "--model", tiny_model, *options, "--limit", "1")[0] == 0
    assert cli("judgelm-batch", path, "--model", moved, *options)[0] == 0
    assert len(rows_of(out)) == 3
    (moved / "config.json").write_text((moved / "config.json").read_text() + "\n")
    code, _, err = cli("judgelm-batch", path, "--model", moved, *options)
    assert code == 1
    assert "model.sha" in err


def test_a_good_run_stays_good_when_it_is_run_again(cli, pairs, tmp_path):
    path = pairs(40)
    path.write_text(path.read_text() + "torn\n")  # 1 of 41 is under the limit of 5 %
    command = ("judgelm-batch", path, "-o", tmp_path / "out.jsonl", *SCRIPTED, "8 6\\n")
    assert [cli(*command)[0] for _ in range(2)] == [0, 0]
    assert len(rows_of(tmp_path / "out.rejects.jsonl")) == 1  # the same line is not rejected twice


@pytest.mark.parametrize("name", ["out.jsonl", "out.rejects.jsonl", "out.run.json"])
def test_a_run_never_writes_over_its_input(cli, pairs, tmp_path, name):
    path = pairs(3, name=name)
    before = path.read_bytes()
    code, _, err = cli("judgelm-batch", path, "-o", tmp_path / "out.jsonl", *SCRIPTED, "8 6\\n", "--overwrite")
    assert code == 1
    assert "would write over its own input" in err
    assert path.read_bytes() == before


def test_overwrite_deletes_nothing_until_the_input_has_been_read(cli, pairs, tmp_path):
    out = tmp_path / "out.jsonl"
    cli("judgelm-batch", pairs(3), "-o", out, *SCRIPTED, "8 6\\n")
    (tmp_path / "odd.jsonl").write_text('{"foo": 1}\n')
    assert cli("judgelm-batch", tmp_path / "odd.jsonl", "-o", out, *SCRIPTED, "8 6\\n", "--overwrite")[0] == 1
    assert len(rows_of(out)) == 3


def test_every_reject_is_shown_where_there_is_no_rejects_file(cli, pairs):
    stdin = pairs(1).read_bytes() + b"torn\n" * 9
    _, out, err = cli("judgelm-batch", "-", *SCRIPTED, "8 6\\n", stdin=stdin)
    assert len(out.splitlines()) == 1
    assert err.count("rejected <stdin>:") == 9


def test_another_window_is_another_run(cli, pairs, tmp_path, tiny_model):
    command = ("judgelm-batch", pairs(2), "-o", tmp_path / "out.jsonl", "--model", tiny_model, "--template",
               "judgelm-compact", "--max-failure-rate", "1")  # fmt: skip
    assert cli(*command, "--limit", "1")[0] == 0
    code, _, err = cli(*command, "--max-model-len", "100")
    assert code == 1
    assert "engine.window: there 512, now 100" in err


def test_a_live_pipe_gets_each_judgment_at_once():
    import subprocess
    import sys

    command = [sys.executable, "-c", "from judgelm.cli.batch import main; main()", "-", *SCRIPTED, "8 6", "-q"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for i in range(2):
            row = {"id": str(i), "question": "q", "answer_1": "a", "answer_2": "b"}
            process.stdin.write(json.dumps(row).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == str(i)  # long before the pipe is closed
        process.stdin.close()
        assert process.wait(timeout=300) == 0
