"""Mistakes of new users: the command works, or its error says how to fix them."""

import json
import shutil
import subprocess
import sys

import huggingface_hub.constants
import pytest

from judgelm.engines.dependencies import require_version
from judgelm.errors import ConfigError

SCRIPTED = ("--engine", "scripted", "--model", "8 6")
TABLE = 'question,answer_1,answer_2\n"Say ""hi"",\nthen go",hi,Grüße\nWhat is 2+2?,4,5\n'


def judged(cli, tmp_path, content, name="pairs.csv"):
    (tmp_path / name).write_bytes(content)
    out = tmp_path / "out.jsonl"
    code, _, err = cli("judgelm-batch", tmp_path / name, "-o", out, *SCRIPTED, "--max-failure-rate", "1")
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return code, len(rows), " ".join(err.split())


@pytest.mark.parametrize(
    "content",
    [
        TABLE.encode(),
        TABLE.encode("utf-8-sig"),
        TABLE.replace("\n", "\r\n").encode(),
        TABLE.replace(",answer", ";answer").replace(",hi,", ";hi;").replace("?,4,", "?;4;").encode("utf-8-sig"),
        TABLE.replace(",answer", "\tanswer").replace(",hi,", "\thi\t").replace("?,4,", "?\t4\t").encode(),
        TABLE.replace("question", " question ").encode(),
    ],
    ids=["plain", "mark", "windows", "semicolons", "tabs", "spaces"],
)
def test_tables_of_spreadsheets_are_judged(cli, tmp_path, content):
    assert judged(cli, tmp_path, content)[:2] == (0, 2)


@pytest.mark.parametrize(
    ("name", "content", "way_out"),
    [
        ("a.csv", TABLE.encode("latin-1"), "in Excel: CSV UTF-8), or run: iconv -f WINDOWS-1252 -t UTF-8"),
        ("a.csv", b"frage,eins,zwei\nq,a,b\n", "rename them to question, answer_1"),
        ("a.csv", b"question,answer\nq,a\n", "expected 2 answers, got 1"),
        ("a.csv", b"question,answer_1,answer_2\nq,a, b, c\n", "quote cells that contain separators"),
        ("a.txt", TABLE.encode(), "or use the extension .csv"),
    ],
)
def test_unreadable_tables_suggest_a_fix(cli, tmp_path, name, content, way_out):
    assert way_out in judged(cli, tmp_path, content, name)[2]


def fake_package(folder, name, version, *requires):
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    lines = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}")


@pytest.mark.parametrize(
    ("installed", "refused"), [("4.57.6", True), ("5.0.0", True), ("5.10.1", False), ("6.0", False)]
)
def test_a_package_that_is_too_old_is_named_with_the_version_needed(tmp_path, monkeypatch, installed, refused):
    fake_package(tmp_path, "transformers", installed)
    fake_package(tmp_path, "judgelm", "0.1.0", "transformers<5.20,>=5.10")
    monkeypatch.syspath_prepend(tmp_path)
    if not refused:
        require_version("transformers")
        return
    with pytest.raises(ConfigError, match=f"transformers {installed} is .*; run: pip install .*<5.20,>=5.10"):
        require_version("transformers")


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def adapter_alone(folder, base):
    """Write a PEFT adapter folder that names its base."""
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": str(base)}))
    (folder / "adapter_model.safetensors").write_bytes(b"")
    return folder


@pytest.mark.parametrize(
    ("base", "finding"),
    [("gone", "gone: no such folder"), ("nobody/no-such-base", "nobody/no-such-base: no such folder")],
)
def test_an_adapter_without_its_base_is_refused(cli, pairs, tmp_path, offline, base, finding):
    base = base if "/" in base else tmp_path / base
    folder = adapter_alone(tmp_path / "adapter", base)
    command = ("judgelm-batch", pairs(1), "-o", tmp_path / "out.jsonl", "--engine", "transformers", "--model", folder)
    code, _, err = cli(*command)
    flat = " ".join(err.split())
    assert code == 1
    assert finding in flat
    assert f"--adapter {folder}" in flat


@pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run(["unshare", "-rn", "true"]).returncode != 0,
    reason="this machine lets nobody make a network of his own (unshare -rn)",
)
def test_a_run_needs_no_network(pairs, tmp_path):
    out = tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "judgelm", "batch", str(pairs(2)), "-o", str(out), *SCRIPTED, "-q"]
    subprocess.run(["unshare", "-rn", *command], check=True)
    assert len(out.read_text().splitlines()) == 2
