"""`judgelm doctor` and its special checks; it runs in a process in which packages can be put at fault."""

import json
import os
import subprocess
import sys

import pytest

from judgelm.prompts import catalog
from judgelm.prompts.sanitization import Sanitizer


def run(*arguments, site=None, columns=80):
    """Exit code, standard output and standard error of `judgelm doctor`; `site` is what Python looks into first."""
    environment = os.environ | {"COLUMNS": str(columns), "OMP_NUM_THREADS": "1"}
    if site is not None:
        environment["PYTHONPATH"] = str(site)
    command = [sys.executable, "-m", "judgelm", "doctor", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_faults_are_told_at_the_end_and_by_the_exit_code(tmp_path):
    for name, version in (("trl", "0.1"), ("statsmodels", "0.15")):
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (tmp_path / "statsmodels.py").write_text("raise OSError('libnothing.so: no such file')")
    out = tmp_path / "found.json"
    code, printed, _ = run("--json", out, site=tmp_path)
    assert code == 1
    found = json.loads(out.read_text())
    states = {one["name"]: one["state"] for one in found["packages"]}
    assert (states["trl"], states["statsmodels"], states["torch"]) == ("out_of_range", "broken", "ok")
    first, _, last = printed.partition("what to mend")
    assert "trl 0.1 is not in judgelm's range >=1.16,<1.17; run: pip install 'trl>=1.16,<1.17'" in last
    assert "statsmodels 0.15 cannot be imported: OSError: libnothing.so: no such file" in last
    assert all(finding in last for finding in found["mend"])
    assert found["engine"]["why"].split()[0] in first
    assert found["judge"].split()[0] in first.partition("default judge: ")[2]
    assert max(map(len, first.splitlines())) <= 80
    assert found["devices"]["cpu"]["usable_cores"] >= 1


@pytest.mark.slow
def test_a_sound_machine_has_exit_code_0_and_clean_json_on_standard_output():
    code, printed, said = run("--json", "-", columns=120)
    found = json.loads(printed)
    assert (code, found["mend"]) == (0, [])
    assert "nothing to mend" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--engine", "fast"), "engine 'fast' does not exist"),
        (("--engine-arg", "block_size"), "expected KEY=VALUE"),
        (("--template", "judgelm-compact"), "are for --injection"),
        (("--gpus", "8", "--gpu-memory", "80"), "give its YAML as --train"),
    ],
)
def test_what_does_not_fit_is_said_before_anything_is_looked_at(cli, arguments, words):
    code, printed, said = cli("judgelm", "doctor", *arguments)
    assert (code, printed) == (1, "")
    assert words in said


def test_every_family_of_attacks_is_listed_and_none_gets_through(cli):
    code, printed, _ = cli("judgelm", "doctor", "--injection", "--template", "judgelm-compact")
    assert code == 0
    assert "attacks on judgelm-compact and the parser; no model, so no tokens" in printed
    assert all(family in printed for family in ("block end", "look-alike", "role marker", "fake reference"))
    assert "none got out of its block" in printed


def test_a_models_tokens_are_attacked_and_its_judge_is_measured(cli, tiny_judge, tmp_path):
    out = tmp_path / "found.json"
    options = ("--model", tiny_judge, "--engine", "transformers", "--seconds", 1, "--json", out)
    code, printed, said = cli("judgelm", "doctor", "--injection", *options)
    assert code == 0, said
    assert "attacks on judgelm-compact and the parser; its special tokens" in printed  # the card's template
    assert "verdicts moved towards the attacker" in printed
    found = json.loads(out.read_text())
    assert len(found["attacks"]) > 200
    assert found["attacks"][0].keys() == {"spoof", "defused", "escapes"}  # keys of earlier versions
    assert "place" in found["attacks"][0]["spoof"]
    assert found["swayed"]["share"]["n"] + found["swayed"]["already"] + found["swayed"]["unreadable"] > 0


def test_an_attack_that_gets_through_is_named_and_ends_with_1(cli, monkeypatch):
    monkeypatch.setattr(catalog.Layout, "sanitizer", property(lambda layout: Sanitizer([])))
    code, printed, _ = cli("judgelm", "doctor", "--injection")
    assert code == 1
    assert "got through block end/[Question] in answer_" in printed
    assert "more in --json" in printed
