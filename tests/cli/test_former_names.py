"""Options under the names of version 0.1, in commands, YAML files and Python."""

import json

import pytest

from judgelm.cli.evaluation import load_manifest
from judgelm.errors import ConfigError
from judgelm.former_names import FORMER_NAMES, current_names
from judgelm.judge import Judge

ENGINE = ("--engine", "scripted", "--model", "8 6", "--quiet")


def fingerprint(out):
    return json.loads(out.with_suffix(".run.json").read_text())["fingerprint"]


@pytest.mark.parametrize(
    ("former", "current"),
    [
        (("--window-tokens", "900"), ("--max-model-len", "900")),
        (("--batch-tokens=64",), ("--max-num-batched-tokens=64",)),
        (("--max-sequences", "3"), ("--max-num-seqs", "3")),
        (("--tie-band", "0.1", "--close-band=0.2"), ("--tie-threshold", "0.1", "--close-threshold=0.2")),
        (("--mode-arg", "tie_band=0.1"), ("--tie-threshold", "0.1")),
    ],
)
def test_a_former_option_gives_the_same_run(cli, pairs, tmp_path, former, current):
    runs = []
    for name, options in (("former", former), ("current", current)):
        out = tmp_path / f"{name}.jsonl"
        code, _, err = cli("judgelm-batch", pairs(3), "-o", out, *ENGINE, *options)
        assert code == 0, err
        runs.append((fingerprint(out), [json.loads(line)["verdict"] for line in out.read_text().splitlines()]))
    assert runs[0] == runs[1]


def test_a_file_may_use_former_names_but_not_both(cli, pairs, tmp_path):
    config = tmp_path / "run.yaml"
    config.write_text("window_tokens: 900\nmax_sequences: 3\n")
    assert cli("judgelm-batch", pairs(2), "-o", tmp_path / "out.jsonl", *ENGINE, "--config", config)[0] == 0
    config.write_text("window_tokens: 900\nmax_model_len: 900\n")
    code, _, err = cli("judgelm-batch", pairs(2), "-o", tmp_path / "out.jsonl", *ENGINE, "--config", config)
    assert code == 1
    assert "window_tokens is the former name of max_model_len" in " ".join(err.split())


def test_a_manifest_of_version_0_1_resumes_and_is_evaluated(cli, pairs, tmp_path):
    out, rows = tmp_path / "out.jsonl", pairs(2, winner=1)
    assert cli("judgelm-batch", rows, "-o", out, *ENGINE, "--tie-threshold", "0.2")[0] == 0
    manifest = out.with_suffix(".run.json")
    former = {current: former for former, current in FORMER_NAMES.items()}
    text = manifest.read_text()
    for current in ("tie_threshold", "close_threshold", "retry_unparseable"):
        assert f'"{current}"' in text
        text = text.replace(f'"{current}"', f'"{former[current]}"')
    manifest.write_text(text)
    before = out.read_bytes()
    code, _, err = cli("judgelm-batch", rows, "-o", out, *ENGINE, "--tie-threshold", "0.2")
    assert (code, out.read_bytes()) == (0, before), err
    manifest.write_text(text)
    assert load_manifest(out)["fingerprint"]["mode"]["tie_threshold"] == 0.2
    assert cli("judgelm", "eval", out, "--labels", rows, "--tie-band", "0.2", "--quiet")[0] == 0


def test_help_shows_no_former_name(cli):
    _, out, _ = cli("judgelm-batch", "--help")
    assert not [former for former in FORMER_NAMES if f"--{former.replace('_', '-')} " in out]


def test_a_name_that_is_valid_here_is_not_renamed():
    assert current_names({"solves": 5, "window_tokens": 9}, {"solves", "self_answers"}) == {
        "solves": 5,
        "window_tokens": 9,
    }


def test_python_takes_former_names():
    Judge("8 6", engine="scripted", window_tokens=60).close()
    with pytest.raises(ConfigError, match="give only max_model_len"):
        Judge("8 6", engine="scripted", window_tokens=60, max_model_len=60)
    with Judge("8 6", engine="scripted") as judge:
        assert judge.mode("pair", tie_band=0.2, close_band=0.3) == judge.mode(
            "pair", tie_threshold=0.2, close_threshold=0.3
        )
        with pytest.raises(ConfigError, match="leave --retry-unparseable out"):
            judge.mode("pair", repair=True)
