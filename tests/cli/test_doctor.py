"""The doctor as users start it: a process of its own, in which packages can be put at fault."""

import json
import os
import subprocess
import sys

import pytest


def _run(*arguments, site=None, columns=80):
    """Exit code, standard output and standard error of `judgelm doctor`; `site` is what Python looks into first."""
    environment = os.environ | {"COLUMNS": str(columns), "OMP_NUM_THREADS": "1"}
    if site is not None:
        environment["PYTHONPATH"] = str(site)
    command = [sys.executable, "-m", "judgelm", "doctor", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def examined(tiny_model, tmp_path_factory):
    """A machine on which trl is too old and statsmodels broken, probed with a tiny model."""
    folder = tmp_path_factory.mktemp("doctor")
    for name, version in (("trl", "0.1"), ("statsmodels", "0.15")):
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "statsmodels.py").write_text("raise OSError('libnothing.so: no such file')")
    out = folder / "found.json"
    code, printed, said = _run(
        "--model", tiny_model, "--engine", "transformers", "--seconds", 1, "--json", out, site=folder
    )
    assert out.exists(), said
    return code, printed, json.loads(out.read_text())


def test_a_fault_is_told_at_the_end_and_by_the_exit_code(examined):
    code, printed, found = examined
    assert code == 1
    states = {one["name"]: one["state"] for one in found["packages"]}
    assert (states["trl"], states["statsmodels"], states["torch"]) == ("out_of_range", "broken", "ok")
    last = printed[printed.index("what to mend") :]
    assert "trl 0.1 is not in judgelm's range >=1.16,<1.17; run: pip install 'trl>=1.16,<1.17'" in last
    assert "statsmodels 0.15 cannot be imported: OSError: libnothing.so: no such file" in last
    assert all(finding in last for finding in found["mend"])


def test_the_probe_is_consistent_in_itself(examined):
    probe = examined[2]["probe"]
    rate = probe["prompt_tokens"] / probe["seconds"]
    assert probe["flops"] == pytest.approx(2 * probe["parameters"] * rate)
    ceiling = max(probe["ceiling_before"], probe["ceiling_after"])
    assert probe["share_of_ceiling"] == pytest.approx(probe["flops"] / ceiling)
    assert 0 < probe["share_of_ceiling"] < 1.2
    assert probe["seconds"] >= 0.6
    assert probe["threads"] == 1


def test_devices_and_the_engine_that_auto_takes_are_told(examined):
    _, printed, found = examined
    assert found["devices"]["cpu"]["usable_cores"] >= 1
    assert found["engine"]["auto"] in {"transformers", "vllm"}
    assert found["engine"]["why"].split()[0] in printed
    assert found["judge"].split()[0] in printed.partition("default judge: ")[2]
    assert max(map(len, printed[: printed.index("what to mend")].splitlines())) <= 80


@pytest.mark.slow
def test_a_sound_machine_has_exit_code_0_and_clean_json_on_standard_output():
    code, printed, said = _run("--seconds", 1, "--json", "-", columns=120)
    found = json.loads(printed)
    assert found["mend"] == []
    assert "nothing to mend" in said
    assert code == 0
    assert 5e7 < found["probe"]["parameters"] < 1e9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--engine", "fast"), "engine 'fast' does not exist"),
        (("--engine-arg", "block_size"), "expected KEY=VALUE"),
    ],
)
def test_what_was_mistyped_is_said_before_anything_is_looked_at(cli, arguments, words):
    code, printed, said = cli("judgelm", "doctor", *arguments)
    assert (code, printed) == (1, "")
    assert words in said
