"""`judgelm judges`, and the commands without a model: the small judge, said with its licence, or the way to it."""

import json
import subprocess
import sys
import time

import pytest

from tests.support.named_judges import MODULE, SMALL

INSTALL = "judgelm judges install small-judge"
NOTICE = "small-judge 9.9: adapter under CC-BY-NC-4.0 (research use only"


def test_the_list_says_what_is_installed(cli, small_judge):
    code, out, _ = cli("judgelm", "judges")
    assert code == 0
    assert "small-judge (default): installed, version 9.9" in out
    assert "adapter under CC-BY-NC-4.0" in out
    row, *released = json.loads(cli("judgelm", "judges", "--json", "-")[1])
    assert (row["installed"], row["adapter"]) == (True, str(small_judge))
    assert {"judgelm", "rm-r1-instruct"} <= {judge["name"] for judge in released}


def test_a_released_judge_is_shown_by_its_name_alone(cli):
    code, out, _ = cli("judgelm", "judges", "auto-j")
    assert code == 0
    assert "no licence stated: bring the file yourself" in out
    assert json.loads(cli("judgelm", "judges", "show", "auto-j", "--json", "-")[1])["models"][0]["base"]
    assert cli("judgelm", "judges", "nonsense")[0] == 1


def test_a_card_is_written_once(cli, tmp_path):
    code, _, _ = cli("judgelm", "judges", "new", str(tmp_path), "--template", "judgelm-chat", "--scale", "1", "5")
    assert code == 0
    card = json.loads((tmp_path / "judge.json").read_text())
    assert (card["template"], card["scale"], card["prompt_format"]) == ("judgelm-chat", [1, 5], "chat")
    assert cli("judgelm", "judges", "new", str(tmp_path))[0] == 1


def test_the_list_says_how_to_install_what_is_not(cli, judge_cache):
    code, out, _ = cli("judgelm", "judges")
    assert code == 0
    assert "small-judge (default): not installed" in out
    assert INSTALL in out


def test_a_second_installation_finds_all_there_and_is_fast(small_judge):
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "judgelm", "judges", "install", "small-judge"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "small-judge was installed before; it judges wherever no model is named" in done.stderr
    assert time.monotonic() - began < 10  # about a second on an idle machine: neither torch nor pip is loaded


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        (["small-judge", "--from", "nowhere"], "nowhere: neither a wheel nor a folder with pyproject.toml"),
        (["large-judge"], "judge 'large-judge' does not exist"),
    ],
)
def test_what_cannot_be_installed_is_refused(cli, judge_cache, arguments, finding):
    code, out, err = cli("judgelm", "judges", "install", *arguments)
    assert (code, out) == (1, "")
    assert finding in err


def test_a_folder_without_a_trained_adapter_is_refused_before_any_download(cli, judge_cache, tmp_path):
    (tmp_path / "source" / MODULE).mkdir(parents=True)
    (tmp_path / "source/pyproject.toml").write_text("[project]\nname = 'judgelm-small-judge'\nversion = '1.0'\n")
    code, _, err = cli("judgelm", "judges", "install", "small-judge", "--from", tmp_path / "source")
    assert code == 1
    assert "has no adapter_model.safetensors and no adapter_config.json and no judge.json" in err
    assert not judge_cache.exists()


def test_a_run_without_a_model_uses_it_and_says_so(cli, pairs, small_judge, tmp_path):
    out = tmp_path / "out.jsonl"
    code, _, err = cli("judgelm-batch", pairs(2), "-o", out, "--engine", "transformers", "--max-failure-rate", 1)
    assert code == 0, err
    assert "loading small-judge, since no model is named (transformers engine)" in err
    [notice] = [line for line in err.splitlines() if line.startswith(NOTICE)]
    assert "base SmolLM2-135M-Instruct (Q4_1) under Apache-2.0" in notice
    model = json.loads((tmp_path / "out.run.json").read_text())["fingerprint"]["model"]
    assert (model["judge"], model["gguf_sha256"]) == ("small-judge", SMALL.base.gguf_sha256)
    assert len(model["adapter_sha"]) == 64


@pytest.mark.parametrize("model", [[], ["--model", "small-judge"]])
def test_a_run_without_the_judge_names_the_command_that_installs_it(cli, pairs, judge_cache, tmp_path, model):
    code, _, err = cli("judgelm-batch", pairs(2), "-o", tmp_path / "out.jsonl", *model)
    assert code == 1
    assert f"run: {INSTALL}" in err
    assert not (tmp_path / "out.jsonl").exists()
    assert not judge_cache.exists()  # nothing was downloaded


@pytest.mark.parametrize("command", ["serve", "web"])
def test_servers_without_the_judge_name_it_too(cli, judge_cache, command):
    code, _, err = cli("judgelm", command, "--port", 0)
    assert code == 1
    assert f"run: {INSTALL}" in err
