"""`judgelm-batch` with distributions, reasons and repairs: what stands in the files and in the summary."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from judgelm.cli.loading import announced
from judgelm.engines.vllm import START_LOG
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, write_card
from judgelm.runs.run_files import read_judgments

SCRIPTED = ("--engine", "scripted", "--model")


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def state(pid):
    """One letter of /proc; X where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


@pytest.fixture
def scripted(cli, pairs, tmp_path):
    """Run over three pairs: p0 steady, p1 flipped, p2 unreadable in one order."""
    script = {
        "q0|a|b": "8 6\nbecause zero", "q0|b|a": "6 8\nbecause zero",
        "q1|a|b": "8 6\nbecause one", "q1|b|a": "9 5\nbecause one, swapped",
        "q2|a|b": "8 6\nbecause two", "q2|b|a": "dunno",
    }  # fmt: skip
    (tmp_path / "script.json").write_text(json.dumps(script))
    path = pairs(3)

    def run(*options):
        return cli("judgelm-batch", path, "-o", tmp_path / "out.jsonl", *SCRIPTED, tmp_path / "script.json",
                   "--both-orders", "--max-failure-rate", "1", *options)  # fmt: skip

    return run


def test_reasons_for_flips_stand_in_both_orders(scripted, tmp_path):
    code, _, err = scripted("--reasons", "flips")
    assert code == 0
    found = read_judgments(tmp_path / "out.jsonl")
    assert [one.reason for one in found["p0"].shown] == [None, None]
    assert ["because one" in one.reason for one in found["p1"].shown] == [True, True]
    assert found["p2"].reason is None
    assert "reasons written / failed" in err
    assert "2 / 0" in err


def test_reasons_change_nothing_else(scripted, tmp_path):
    scripted()
    without = {row["id"]: row for row in rows_of(tmp_path / "out.jsonl")}
    scripted("--reasons", "all", "--overwrite")
    for row in rows_of(tmp_path / "out.jsonl"):
        plain = without[row["id"]]
        for field in ("verdict", "scores", "consistent", "failure"):
            assert row[field] == plain[field]
        for shown, before in zip(row["shown"], plain["shown"], strict=True):
            assert {key: value for key, value in shown.items() if key != "reason"} == before


def test_a_run_with_reasons_resumes_and_is_another_run_than_one_without(scripted, tmp_path):
    assert scripted("--reasons", "all", "--limit", "1")[0] == 0
    assert scripted("--reasons", "all")[0] == 0
    assert sorted(row["id"] for row in rows_of(tmp_path / "out.jsonl")) == ["p0", "p1", "p2"]
    code, _, err = scripted()
    assert code == 1
    assert 'mode.reasons: there "all", now "none"' in err


def test_distributions_stand_in_the_rows_and_are_summed_up(scripted, tmp_path):
    code, _, err = scripted("--distribution")
    assert code == 0
    rows = {row["id"]: row for row in rows_of(tmp_path / "out.jsonl")}
    # the script is certain of what it writes: p0 for the first in both orders, p1 in one of two
    assert (rows["p0"]["probability"], rows["p1"]["probability"], rows["p2"]["probability"]) == (1, 0.5, None)
    assert rows["p0"]["shown"][0]["distribution"]["likeliest"] == [[8, 6, 1]]
    assert rows["p2"]["shown"][1]["distribution"]["first_better"] is None
    assert "2 of 3" in err
    assert "0.167 (n = 6)" in err  # one of six orders has all of its mass elsewhere
    assert "less than half of the probability" in err


def test_the_probability_rule_decides(scripted, tmp_path):
    assert scripted("--order-rule", "probability", "--tie-threshold", "0.1")[0] == 0
    found = read_judgments(tmp_path / "out.jsonl")
    # the mean scores of p1 are (8 + 5) / 2 against (6 + 9) / 2, which would be 2
    assert [found[key].verdict and found[key].verdict.winner for key in ("p0", "p1", "p2")] == [1, "tie", None]
    mode = json.loads((tmp_path / "out.run.json").read_text())["fingerprint"]["mode"]
    assert (mode["order_rule"], mode["tie_threshold"], mode["distribution"]) == ("probability", 0.1, True)


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        (
            ["--retry-unparseable"],
            "the scripted engine cannot constrain a reply to a grammar, which retry_unparseable needs",
        ),
        (["--engine-arg", "retries"], "--engine-arg retries: expected KEY=VALUE"),
        (["--engine-arg", "=3"], "expected KEY=VALUE"),
        (["--engine-arg", "a=1", "--engine-arg", "a=2"], "a is given twice"),
        (["--engine-arg", "a={1"], "the value is no YAML"),
        (
            ["--engine-arg", "retries=3"],
            "the scripted engine has no engine arguments of its own, but got retries",
        ),
        (["--tie-threshold", "0.7"], "Invalid value for '--tie-threshold'"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_judged(scripted, tmp_path, options, finding):
    code, _, err = scripted(*options)
    assert code == 1
    assert finding in " ".join(err.split())
    assert "Traceback" not in err
    assert not (tmp_path / "out.jsonl").exists()


def test_flips_without_both_orders_is_said_before_the_model_is_loaded(cli, pairs, tmp_path):
    command = ("judgelm-batch", pairs(1), "-o", tmp_path / "out.jsonl", "--model", tmp_path / "no-such-model")
    code, _, err = cli(*command, "--reasons", "flips")
    assert code == 1
    assert "add --both-orders" in err


@pytest.mark.parametrize(
    "written",
    ["engine_arg: {retries: 3}", "engine_arg: ['retries=3']", "engine_arg:\n  retries: 3\n  nested: {a: [1]}"],
)
def test_engine_arguments_of_a_config_file_arrive(cli, pairs, tmp_path, written):
    (tmp_path / "batch.yaml").write_text(written)
    command = ("judgelm-batch", pairs(1), "-o", tmp_path / "out.jsonl", *SCRIPTED, "8 6", "--config")
    code, _, err = cli(*command, tmp_path / "batch.yaml")
    assert code == 1
    assert "no engine arguments of its own, but got retries" in " ".join(err.split())


def test_engine_arguments_of_another_shape_are_refused(cli, pairs, tmp_path):
    (tmp_path / "batch.yaml").write_text("engine_arg: 3")
    code, _, err = cli("judgelm-batch", pairs(1), *SCRIPTED, "8 6", "--config", tmp_path / "batch.yaml")
    assert code == 1
    assert "engine_arg: expected a mapping" in err


def test_auto_says_which_engine_and_why(cli, pairs, tmp_path, tiny_model):
    from judgelm.engines.catalog import choose_engine

    name, why = choose_engine()
    command = (
        "judgelm-batch",
        pairs(1),
        "-o",
        tmp_path / "out.jsonl",
        "--model",
        tiny_model,
        "--max-failure-rate",
        "1",
    )
    if name != "transformers":
        pytest.skip("this machine has vLLM, which takes a minute to load")
    _, _, err = cli(*command)
    assert f"loading {tiny_model} (transformers engine: {why})" in " ".join(err.split())
    assert "template judgelm-v1 (from the default), scores 1 to 10" in err


def test_the_manifest_knows_the_engines_counts_and_the_process(scripted, tmp_path):
    scripted()
    [session] = json.loads((tmp_path / "out.run.json").read_text())["sessions"]
    assert (session["engine"], session["pid"], session["children"]) == ({}, os.getpid(), [])


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux's /proc")
def test_a_rerun_ends_what_a_killed_run_left_behind(cli, pairs, tmp_path):
    out = tmp_path / "out.jsonl"
    code = (
        "import subprocess, sys; from judgelm.runs.session import mark_children; mark_children(sys.argv[1]);"
        "print(subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=subprocess.DEVNULL).pid, flush=True);"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        child = int(parent.stdout.readline())
        time.sleep(0.2)
        parent.kill()
    try:
        exit_code, _, err = cli("judgelm-batch", pairs(1), "-o", out, *SCRIPTED, "8 6")
        assert exit_code == 0
        assert "ended 1 process left by a killed run" in err
        assert state(child) in "ZX"
    finally:
        if state(child) not in "ZX":
            os.kill(child, signal.SIGKILL)


def test_over_an_endpoint_unreadable_replies_are_repaired_and_explained(cli, pairs, tmp_path, tiny_model):
    from tests.support.endpoint.backends import TinyBackend
    from tests.support.endpoint.server import endpoint

    out = tmp_path / "out.jsonl"
    with endpoint(TinyBackend(tiny_model), supports_grammar=True) as server:  # it writes nonsense unless it is held
        code, _, err = cli(
            "judgelm-batch", pairs(3), "-o", out, "--engine", "openai", "--model", "tiny", "--template",
            "judgelm-compact", "--engine-arg", f"base_url={server.base_url}", "--engine-arg", "backoff_s=0.01",
            "--retry-unparseable", "--reasons", "all", "--reason-tokens", "5", "--distribution",
        )  # fmt: skip
    assert code == 0, err
    assert "template judgelm-compact (from the option, since a server's model has no card)" in " ".join(err.split())
    found = read_judgments(out).values()
    assert all(judgment.repaired and judgment.verdict is not None for judgment in found)
    assert all(judgment.reason and judgment.shown[0].reason_failure.code == "truncated" for judgment in found)
    assert all(judgment.shown[0].distribution.unassigned > 0.5 and judgment.probability is None for judgment in found)
    [session] = json.loads((tmp_path / "out.run.json").read_text())["sessions"]
    assert (session["repaired"], session["reasons"], session["little_mass"]) == (3, 3, 3)
    assert session["engine"]["requests"] >= 9


@pytest.mark.parametrize(
    ("name", "arguments", "refused"),
    [
        ("vllm", [], "nowhere"),
        (
            "openai",
            ["--engine-arg", "base_url=http://127.0.0.1:9/v1", "--engine-arg", "retries=0"],
            "cannot be reached",
        ),
    ],
)
def test_the_configs_that_come_with_it_reach_the_engine(cli, pairs, tmp_path, name, arguments, refused):
    config = Path(__file__).parents[2] / "configs" / "judge" / f"{name}.yaml"
    command = ("judgelm-batch", pairs(1), "-o", tmp_path / "out.jsonl", "--model", "./nowhere", "--config", config)
    code, _, err = cli(*command, *arguments)
    assert code == 1
    assert refused in err


@pytest.mark.parametrize(("with_reason", "warned"), [(0, True), (5, False)])
def test_reasons_of_a_judge_that_never_saw_any_are_not_to_be_trusted(
    cli, pairs, tiny_model, tmp_path, with_reason, warned
):
    shutil.copytree(tiny_model, tmp_path / "judge")
    sha = get_template("judgelm-compact").sha
    facts = {"rows_with_reason": with_reason}
    write_card(tmp_path / "judge", Card(template="judgelm-compact", template_sha=sha, training=facts))
    command = ("judgelm-batch", pairs(1), "-o", tmp_path / "out.jsonl", "--model", tmp_path / "judge")
    _, _, err = cli(*command, "--engine", "transformers", "--reasons", "all", "--max-failure-rate", "1")
    assert ("was trained without reasons" in err) == warned


def test_mode_arguments_are_the_modes_options(cli, pairs, tmp_path):
    command = ("judgelm-batch", pairs(2), "-o", tmp_path / "o.jsonl", "--model", "8 6", "--engine", "scripted")
    code, _, err = cli(*command, "--mode-arg", "both_orders=true")
    assert code == 0, err
    assert "judging: both orders" in err
    code, _, err = cli(*command, "--mode-arg", "tau=0.8")
    assert code == 1
    assert "mode pair: unknown option tau" in err
    code, _, err = cli(*command, "--both-orders", "--mode-arg", "both_orders=false")
    assert code == 1
    assert "set the same option" in err


def test_the_stages_of_a_start_are_printed_once_unless_quiet(capsys):
    for quiet, shown in ((False, 1), (True, 0), (False, 1)):
        announced("8 6", "scripted", None, quiet=quiet)
        capsys.readouterr()
        START_LOG.info("vLLM, %.0f s: %s", 3.2, "loading weights")
        assert capsys.readouterr().err.count("vLLM, 3 s: loading weights\n") == shown
