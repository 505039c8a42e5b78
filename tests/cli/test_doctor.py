"""`judgelm doctor`, in a process where packages can be broken."""

import json
import os
import subprocess
import sys

import pytest


def run(*arguments, site=None, columns=80):
    """Run `judgelm doctor`, with `site` first on the import path; return exit code, standard output and error."""
    environment = os.environ | {"COLUMNS": str(columns), "OMP_NUM_THREADS": "1"}
    if site is not None:
        environment["PYTHONPATH"] = str(site)
    command = [sys.executable, "-m", "judgelm", "doctor", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_problems_are_listed_and_set_the_exit_code(tmp_path):
    for name, version in (("trl", "0.1"), ("statsmodels", "0.15")):
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (tmp_path / "statsmodels.py").write_text("raise OSError('libnothing.so: no such file')")
    out = tmp_path / "found.json"
    code, printed, _ = run("--json", out, site=tmp_path)
    assert code == 1
    report = json.loads(out.read_text())
    states = {package["name"]: package["state"] for package in report["packages"]}
    assert (states["trl"], states["statsmodels"], states["torch"]) == ("out_of_range", "broken", "ok")
    first, _, last = printed.partition("to fix")
    assert (
        "trl 0.1 is outside the range supported by judgelm (>=1.16,<1.17); run: pip install 'trl>=1.16,<1.17'" in last
    )
    assert "statsmodels 0.15 cannot be imported: OSError: libnothing.so: no such file" in last
    assert all(finding in last for finding in report["fixes"])
    assert report["engine"]["why"].split()[0] in first
    assert report["judge"].split()[0] in first.partition("default judge: ")[2]
    assert max(map(len, first.splitlines())) <= 80
    assert report["devices"]["cpu"]["usable_cores"] >= 1


@pytest.mark.slow
def test_without_problems_the_exit_code_is_0_and_json_is_valid():
    code, printed, errors = run("--json", "-", columns=120)
    report = json.loads(printed)
    assert (code, report["fixes"]) == (0, [])
    assert "no problems found" in errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "max_length=1"), "require --train"),
        (("--train", "nowhere.yaml"), "nowhere.yaml: cannot read"),
        (("--gpus", "8", "--gpu-memory", "80"), "require --train"),
    ],
)
def test_conflicting_options_are_refused_first(cli, arguments, words):
    code, printed, errors = cli("judgelm", "doctor", *arguments)
    assert (code, printed) == (1, "")
    assert words in errors
