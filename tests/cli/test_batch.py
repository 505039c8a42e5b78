"""`judgelm-batch` with the scripted engine."""

import json
import shutil
import subprocess
import sys

import pytest

from judgelm.jsonl import Appender
from judgelm.runs.run_files import read_judgments
from tests.support.jsonl_files import rows_of

SCRIPTED = ("--engine", "scripted", "--model")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.jsonl"


@pytest.fixture
def script(tmp_path):
    """Write a script of replies by prompt."""

    def write(replies):
        path = tmp_path / "script.json"
        path.write_text(json.dumps(replies))
        return path

    return write


def test_a_run_leaves_judgments_and_a_manifest(batch, pairs, out):
    code, _, err = batch(pairs(5), "--both-orders")
    assert code == 0
    assert "question = question" in err  # the recognised fields are shown
    assert {row["id"] for row in rows_of(out)} == {f"p{i}" for i in range(5)}
    manifest = json.loads(out.with_name("out.run.json").read_text())
    [session] = manifest["sessions"]
    assert (session["outcome"], session["judged"]) == ("finished", 5)
    assert manifest["fingerprint"]["template"]["id"] == "judgelm-v1"
    [provenance] = manifest["provenance"]
    assert {row["provenance"] for row in rows_of(out)} == {provenance}


def test_another_model_or_mode_is_refused_with_both_values(batch, pairs, out):
    batch(pairs(3), "--limit", "2")
    assert "2 samples have already been judged" in batch(pairs(3))[2]
    code, _, err = batch(pairs(3), "--order-rule", "tie", reply="7 6\\n")
    assert code == 1
    assert "contains judgments from another run" in err
    assert 'mode.order_rule: was "mean", now "tie"' in err
    assert "model.sha: was" in err
    assert "--overwrite" in err
    assert len(rows_of(out)) == 3
    assert batch(pairs(3), "--overwrite", reply="5 6\\n")[0] == 0
    assert [row["verdict"]["winner"] for row in rows_of(out)] == [2, 2, 2]


def test_new_rows_are_judged_and_changed_rows_are_refused(batch, pairs, out):
    path = pairs(3)
    batch(path)
    path.write_text(path.read_text() + '{"id": "new", "question": "q", "answer_1": "a", "answer_2": "b"}\n')
    assert batch(path)[0] == 0
    assert len(rows_of(out)) == 4
    path.write_text(path.read_text().replace("q1", "changed"))
    code, _, err = batch(path)
    assert code == 1
    assert "input" in err


def test_judgments_without_manifest_are_not_changed(batch, pairs, out):
    out.write_text("somebody's work\n")
    code, _, err = batch(pairs(3))
    assert code == 1
    assert "out.run.json is missing" in err
    assert out.read_text() == "somebody's work\n"


def test_stdin_to_stdout_prints_every_reject(cli, pairs):
    stdin = pairs(3).read_bytes() + b"torn\n" * 9
    code, out, err = cli("judgelm-batch", "-", *SCRIPTED, "8 6\\n", stdin=stdin)
    assert code == 2
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["p0", "p1", "p2"]
    assert err.count("rejected <stdin>:") == 9


def test_failures_are_counted_and_set_the_exit_code(batch, pairs, out, script):
    replies = script({"q0|a|b": "8 6\n", "q1|a|b": "no\n", "q2|a|b": "80 6\n"})
    code, _, err = batch(pairs(4), reply=replies)
    assert code == 2
    assert "unparseable 1" in err
    assert "out of range 1" in err
    assert "engine 1" in err
    failures = {row["id"]: row["failure"] and row["failure"]["code"] for row in rows_of(out)}
    assert failures == {"p0": None, "p1": "off_grammar", "p2": "out_of_range", "p3": "engine"}
    code, _, err = batch(pairs(4), reply=replies)  # only p3 is judged again, and earlier failures still count
    assert code == 2
    assert "failed in an earlier session" in err
    assert batch(pairs(4), "--max-failure-rate", "0.75", reply=replies)[0] == 0  # 3 of 4 failed, over all sessions


def test_a_rerun_retries_engine_failures_and_with_retry_all_failures(batch, pairs, out, script):
    command = (pairs(3), "--max-failure-rate", "1")
    replies = script({"q0|a|b": "8 6\n", "q1|a|b": "no\n"})
    batch(*command, reply=replies)
    assert len(rows_of(out)) == 3
    batch(*command, reply=replies)
    assert [row["id"] for row in rows_of(out)[3:]] == ["p2"]
    batch(*command, "--retry", "failed", reply=replies)
    assert sorted(row["id"] for row in rows_of(out)[4:]) == ["p1", "p2"]
    assert len(read_judgments(out)) == 3


def test_rejects_are_stored_with_place_and_reason(batch, pairs, out):
    path = pairs(2)
    bad = [
        b'{"id": "x", "question": "q"}',
        b'{"torn',
        b"\xff\xfe",
        b'{"id": "p0", "question": "q", "answer_1": "a", "answer_2": "b"}',
        b'{"id": "n", "question": "q", "answer_1": 7, "answer_2": "b"}',
    ]
    path.write_bytes(path.read_bytes() + b"\n".join(bad) + b"\n")
    code, _, err = batch(path)
    assert code == 2
    rejects = rows_of(out.with_name("out.rejects.jsonl"))
    assert [reject["line"] for reject in rejects] == [3, 4, 5, 6, 7]
    assert 'id "p0" appears more than once' in rejects[3]["reason"]
    assert "expected text, got the number 7" in rejects[4]["reason"]
    assert "pairs.jsonl:3:" in err
    assert len(rows_of(out)) == 2


RUN = ("{pairs}", "-o", "out.jsonl")
TRY = (*RUN, *SCRIPTED, "8 6")


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        (["nowhere.jsonl", "-o", "out.jsonl", *SCRIPTED, "8 6"], "no such file"),
        ([*RUN, *SCRIPTED, "8 6", "--self-answers", "nowhere.jsonl"], "no such file"),
        ([*RUN, "--model", "x", "--mode", "duel"], "mode 'duel' does not exist; available: pair"),
        ([*RUN, "--model", "x", "--engine", "vlm"], "engine 'vlm' does not exist"),
        ([*RUN, "--engine", "scripted"], "the scripted engine has no default judge"),
        ([*RUN, "--model", "no-such-model", "--reasons", "flips"], "add --both-orders"),  # before anything is loaded
        (["{pairs}", *SCRIPTED, "8 6"], "-o is missing"),
        (["{pairs}", "-o", "nowhere/out.jsonl", *SCRIPTED, "8 6"], "no such folder"),
        (["{pairs}", "-o", "out.csv", *SCRIPTED, "8 6"], "must end in .jsonl"),
        (["{pairs}", "-o", "folder.jsonl", *SCRIPTED, "8 6"], "folder.jsonl is a folder"),
        ([*TRY, "--template", "judgelm-v2"], "did you mean judgelm-v1"),
        (["{empty}", "-o", "out.jsonl", *SCRIPTED, "8 6"], "empty"),
        ([*TRY, "--config", "{bad_yaml}"], "unknown option modle"),
        (["{pairs}", "-o", "-", *SCRIPTED, "8 6", "--json", "-"], "already go to standard output"),
        ([*TRY, "--tie-threshold", "0.7"], "Invalid value for '--tie-threshold'"),
        ([*TRY, "--engine-arg", "=3"], "expected KEY=VALUE"),
        ([*TRY, "--engine-arg", "a=1", "--engine-arg", "a=2"], "a is given twice"),
        ([*TRY, "--engine-arg", "a={1"], "the value is not valid YAML"),
        ([*TRY, "--mode-arg", "tau=0.8"], "mode pair: unknown option tau"),
        ([*TRY, "--mode", "correctness", "--both-orders"], "mode correctness: unknown option both_orders"),
        ([*TRY, "--both-orders", "--mode-arg", "both_orders=false"], "set the same option"),
    ],
)
def test_usage_errors_exit_with_1(cli, pairs, tmp_path, monkeypatch, arguments, finding):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "bad.yaml").write_text("modle: x\n")
    places = {"{pairs}": str(pairs(2)), "{empty}": "empty.jsonl", "{bad_yaml}": "bad.yaml"}
    code, printed, err = cli("judgelm-batch", *(places.get(argument, argument) for argument in arguments))
    assert code == 1
    assert finding in " ".join(err.split())
    assert "Traceback" not in err
    assert printed == ""
    assert not (tmp_path / "out.jsonl").exists()


def test_flags_override_the_config_file(cli, pairs, tmp_path, out):
    config = tmp_path / "batch.yaml"
    config.write_text("engine: scripted\nmodel: 8 6\norder_rule: tie\nmode_arg: {both_orders: true}\n")
    code, _, err = cli("judgelm-batch", pairs(2), "-o", out, "--config", config, "--order-rule", "mean")
    assert code == 0
    assert "judging: both orders" in err
    mode = json.loads((tmp_path / "out.run.json").read_text())["fingerprint"]["mode"]
    assert (mode["both_orders"], mode["order_rule"]) == (True, "mean")


@pytest.mark.parametrize(
    ("written", "finding"),
    [
        ("engine_arg: ['retries=3']", "retries"),
        ("engine_arg:\n  retries: 3\n  nested: {a: [1]}", "retries, nested"),
        ("engine_arg: 3", "engine_arg: expected a mapping"),
    ],
)
def test_engine_arguments_in_a_config_file_reach_the_engine(batch, pairs, tmp_path, written, finding):
    (tmp_path / "batch.yaml").write_text(written)
    code, _, err = batch(pairs(1), "--config", tmp_path / "batch.yaml")
    assert code == 1
    assert finding in " ".join(err.split())


def test_two_runs_cannot_write_one_file(batch, pairs, out):
    batch(pairs(2), "--limit", "1")
    with Appender(out):
        code, _, err = batch(pairs(2))
    assert code == 1
    assert "another process is writing to this file" in err


def test_a_moved_model_continues_the_run_and_another_window_does_not(cli, pairs, tmp_path, tiny_model, out):
    moved = shutil.copytree(tiny_model, tmp_path / "moved")
    options = ("-o", out, "--template", "judgelm-compact", "--max-failure-rate", "1")
    assert cli("judgelm-batch", pairs(3), "--model", tiny_model, *options, "--limit", "1")[0] == 0
    assert cli("judgelm-batch", pairs(3), "--model", moved, *options)[0] == 0
    assert len(rows_of(out)) == 3
    (moved / "config.json").write_text((moved / "config.json").read_text() + "\n")
    code, _, err = cli("judgelm-batch", pairs(3), "--model", moved, *options, "--max-model-len", "100")
    assert code == 1
    assert "model.sha" in err
    assert "engine.window: was 512, now 100" in err


def test_overwrite_deletes_nothing_before_the_input_is_read(batch, pairs, tmp_path, out):
    batch(pairs(3))
    (tmp_path / "odd.jsonl").write_text('{"foo": 1}\n')
    assert batch(tmp_path / "odd.jsonl", "--overwrite")[0] == 1
    assert len(rows_of(out)) == 3


def test_a_live_pipe_gets_each_judgment_immediately():
    command = [sys.executable, "-c", "from judgelm.cli.batch import main; main()", "-", *SCRIPTED, "8 6", "-q"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for i in range(2):
            row = {"id": str(i), "question": "q", "answer_1": "a", "answer_2": "b"}
            process.stdin.write(json.dumps(row).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == str(i)  # long before the pipe is closed
        process.stdin.close()
        assert process.wait(timeout=300) == 0


@pytest.mark.parametrize(("options", "asked"), [((), True), (("--no-distribution",), False)])
def test_distributions_are_on_by_default_if_one_pass_gives_them(cli, pairs, tiny_model, tmp_path, options, asked):
    judge = ("--model", tiny_model, "--template", "judgelm-compact", "--max-failure-rate", "1")
    command = ("judgelm-batch", pairs(1), "-o", tmp_path / "out.jsonl", "--engine", "transformers")
    assert cli(*command, *judge, *options)[0] == 0
    [shown] = json.loads((tmp_path / "out.jsonl").read_text())["shown"]
    assert (shown.get("distribution") is not None) is asked


def test_a_run_stopped_by_a_daily_limit_can_be_resumed(cli, pairs, tmp_path):
    from tests.support.endpoint.server import endpoint

    out = tmp_path / "out.jsonl"
    with endpoint() as server:
        arguments = ("--template", "judgelm-compact", "--engine-arg", f"base_url={server.base_url}", "--engine-arg",
                     "concurrency=1")  # fmt: skip
        command = ("judgelm-batch", pairs(4), "-o", out, "--engine", "openai", "--model", "tiny", *arguments)
        limit = 429, {"error": {"message": "try again in 20h"}}
        server.misbehave(lambda number, _: limit if number > 5 else None)  # some of them test what the server supports
        code, _, errors = cli(*command)
        assert (code, 0 < len(rows_of(out)) < 4) == (1, True)
        assert "pause of 20 h" in errors
        server.misbehave(None)
        assert cli(*command)[0] == 0
    assert {row["id"] for row in rows_of(out)} == {"p0", "p1", "p2", "p3"}
