"""`judgelm-batch` with distributions, reasons and retries: run files and summary."""

import json
import shutil
from pathlib import Path

import pytest

from judgelm.cli.console import console
from judgelm.cli.run import announce
from judgelm.engines.vllm import START_LOG
from judgelm.judges.resolve import resolve
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, write_card
from judgelm.runs.run_files import read_judgments
from tests.support.jsonl_files import rows_of


def test_reasons_and_distributions_are_in_the_rows_and_the_summary(batch, pairs, tmp_path):
    script = {
        "q0|a|b": "8 6\nbecause zero", "q0|b|a": "6 8\nbecause zero",  # steady
        "q1|a|b": "8 6\nbecause one", "q1|b|a": "9 5\nbecause one, swapped",  # flipped
        "q2|a|b": "8 6\nbecause two", "q2|b|a": "dunno",
    }  # fmt: skip
    (tmp_path / "script.json").write_text(json.dumps(script))
    options = ("--both-orders", "--max-failure-rate", "1", "--distribution", "--reasons", "flips")
    code, _, err = batch(pairs(3), *options, reply=tmp_path / "script.json")
    assert code == 0
    rows = {row["id"]: row for row in rows_of(tmp_path / "out.jsonl")}
    # the script is certain of what it writes: p0 for the first in both orders, p1 in one of two
    assert [rows[key]["probability"] for key in ("p0", "p1", "p2")] == [1, 0.5, None]
    assert rows["p0"]["shown"][0]["distribution"]["likeliest"] == [[8, 6, 1]]
    assert rows["p2"]["shown"][1]["distribution"]["first_better"] is None
    explained = {key: ["because" in shown.get("reason", "") for shown in row["shown"]] for key, row in rows.items()}
    assert explained == {"p0": [False, False], "p1": [True, True], "p2": [False, False]}
    assert "2 of 3" in err
    assert "0.167 (n = 6)" in err  # one of six orders has all of its mass elsewhere
    assert "less than half of the probability" in err
    assert "reasons written / failed" in err
    assert "2 / 0" in err


def test_unparseable_replies_of_an_endpoint_are_retried_and_explained(cli, pairs, tmp_path, tiny_model):
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
    assert "template judgelm-compact (from the option, because models on a server do not have a card)" in " ".join(
        err.split()
    )
    judgments = read_judgments(out).values()
    assert all(judgment.repaired and judgment.verdict is not None for judgment in judgments)
    assert all(judgment.reason and judgment.shown[0].reason_failure.code == "truncated" for judgment in judgments)
    assert all(judgment.shown[0].distribution.unassigned > 0.5 for judgment in judgments)
    assert all(judgment.probability is None for judgment in judgments)
    [session] = json.loads((tmp_path / "out.run.json").read_text())["sessions"]
    assert (session["repaired"], session["reasons"], session["little_mass"]) == (3, 3, 3)
    assert session["engine"]["requests"] >= 9


def test_unparseable_replies_of_transformers_are_retried(cli, pairs, tmp_path, tiny_model):
    out = tmp_path / "out.jsonl"
    command = ("judgelm-batch", pairs(3), "-o", out, "--engine", "transformers", "--model", tiny_model)
    code, _, err = cli(*command, "--template", "judgelm-compact", "--retry-unparseable", "--both-orders")
    assert code == 0, err
    judgments = read_judgments(out).values()
    assert all(judgment.repaired and judgment.verdict is not None for judgment in judgments)


@pytest.mark.parametrize(
    ("name", "arguments", "refused"),
    [
        ("vllm", [], "nowhere"),
        ("openai", ["--engine-arg", "base_url=http://127.0.0.1:9/v1", "--engine-arg", "retries=0"], "is unreachable"),
    ],
)
def test_shipped_configs_reach_the_engine(cli, pairs, tmp_path, name, arguments, refused):
    config = Path(__file__).parents[2] / "configs" / "judge" / f"{name}.yaml"
    command = ("judgelm-batch", pairs(1), "-o", tmp_path / "out.jsonl", "--model", "./nowhere", "--config", config)
    code, _, err = cli(*command, *arguments)
    assert code == 1
    assert refused in err


@pytest.mark.parametrize(("with_reason", "warned"), [(0, True), (5, False)])
def test_a_judge_not_trained_on_reasons_gets_a_warning(cli, pairs, tiny_model, tmp_path, with_reason, warned):
    shutil.copytree(tiny_model, tmp_path / "judge")
    sha = get_template("judgelm-compact").sha
    facts = {"rows_with_reason": with_reason}
    write_card(tmp_path / "judge", Card(template="judgelm-compact", template_sha=sha, training=facts))
    command = ("judgelm-batch", pairs(1), "-o", tmp_path / "out.jsonl", "--model", tmp_path / "judge")
    _, _, err = cli(*command, "--engine", "transformers", "--reasons", "all", "--max-failure-rate", "1")
    assert ("was not trained to give reasons" in err) == warned


def test_the_stages_of_a_start_are_printed_once_unless_quiet(capsys, monkeypatch):
    for quiet, shown in ((False, 1), (True, 0), (False, 1)):
        monkeypatch.setattr(console, "quiet", quiet)
        announce(resolve("8 6", "scripted"))
        capsys.readouterr()
        START_LOG.info("vLLM, %.0f s: %s", 3.2, "loading weights")
        assert capsys.readouterr().err.count("vLLM, 3 s: loading weights\n") == shown
