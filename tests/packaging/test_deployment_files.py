"""Containerfiles, manifests, workflows and scripts, by linters and this project's rules; the CPU image's steps."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from judgelm.package import VERSION
from tests.support.containerfiles import Image, build_context, instructions, stages
from tests.support.processes import run_command
from tests.support.snippet_commands import check_shell

ROOT = Path(__file__).parents[2]
CONTAINERFILES = sorted((ROOT / "serve/containers").glob("*.Containerfile"))
COMPOSE = ROOT / "serve/containers/compose.yaml"
MANIFESTS = sorted((ROOT / "serve/kubernetes").glob("*.yaml"))
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
SCRIPTS = sorted(path for folder in ("serve", "configs", "tests") for path in (ROOT / folder).rglob("*.sh"))
KUBERNETES = ("1.32", "1.37")
"""Oldest and newest version that the manifests are checked for."""


def lint(program, *arguments):
    run_command(Path(sys.executable).with_name(program), *arguments, cwd=ROOT)


def documents(path):
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


MANIFEST_DOCUMENTS = [
    pytest.param(document, id=f"{path.stem}-{document['kind']}") for path in MANIFESTS for document in documents(path)
]


def pods(document):
    """The pod specifications of a manifest."""
    spec = document["spec"]
    return [spec["template"]["spec"]] if "template" in spec else []


@pytest.mark.parametrize("path", CONTAINERFILES, ids=lambda path: path.stem)
def test_an_image_is_pinned_built_in_stages_and_runs_without_rights(path):
    lint("hadolint", path)
    steps = instructions(path)
    assert list(stages(path)) == ["", "build", "runtime"]
    [base] = [step.text for step in steps if step.word == "ARG" and step.text.startswith("PYTHON_IMAGE=")]
    assert re.search(r":\d+\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}$", base)
    assert [step.text for step in steps if step.word == "USER"] == ["10001:10001"]
    assert any("make image " in step.text for step in stages(path)["build"])


def test_compose_fits_its_schema_and_names_commands_that_there_are():
    lint("check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)
    services = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    for service in services.values():
        assert service["read_only"]
        assert (ROOT / service["build"]["dockerfile"]).is_file()
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        words = service.get("entrypoint", ["judgelm"]) + service.get("command", ["pairs.jsonl", "-o", "out.jsonl"])
        check_shell(shlex.join(words))


@pytest.mark.parametrize("document", MANIFEST_DOCUMENTS)
@pytest.mark.parametrize("version", KUBERNETES)
def test_manifests_fit_kubernetes_schemas(document, version):
    kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("document", [one for one in MANIFEST_DOCUMENTS if pods(one.values[0])])
def test_pods_run_without_rights_and_their_commands_exist(document):
    for spec in pods(document):
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["runAsUser"] == 10001
        assert spec["automountServiceAccountToken"] is False
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert {"requests", "limits"} == container["resources"].keys()
            if "args" in container:
                check_shell(shlex.join([*container.get("command", ["judgelm"]), *container["args"]]))


def test_the_judges_probes_outlast_loading_and_a_shutdown():
    [spec] = [spec for document in documents(ROOT / "serve/kubernetes/judge.yaml") for spec in pods(document)]
    [container] = spec["containers"]
    probes = [container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]
    assert [probe["httpGet"]["path"] for probe in probes] == ["/readyz", "/readyz", "/livez"]
    shutdown = int(container["args"][container["args"].index("--shutdown-s") + 1])
    # 10 s preStop + 60 s shutdown < 90 s; /livez stays 200 in a shutdown, so no probe cuts it short
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pause + shutdown < spec["terminationGracePeriodSeconds"]
    assert probes[0]["failureThreshold"] * probes[0]["periodSeconds"] == 20 * 60


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_fit_their_schema_pin_actions_ask_for_little_and_call_what_there_is(path):
    lint("check-jsonschema", "--builtin-schema", "vendor.github-workflows", path)
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 360
        assert set(job.get("needs", [])) <= set(workflow["jobs"]) or job["needs"] in workflow["jobs"]
        targets = job.get("strategy", {}).get("matrix", {}).get("tier", [])
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"])
            else:
                targets = targets + re.findall(r"^make ([a-z-]+)", step["run"], re.M)
                assert "${{ github." not in step["run"]  # a branch's name would be read by the shell
        assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.M)] == []


@pytest.mark.parametrize("path", [ROOT / ".ci/run", *SCRIPTS], ids=lambda path: path.name)
def test_shellcheck_finds_nothing(path):
    lint("shellcheck", "--exclude=SC2016", path)  # what srun runs is expanded on the nodes


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == VERSION
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["license"] == "Apache-2.0"


CPU = stages(ROOT / "serve/containers/cpu.Containerfile")
WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt")


def test_the_build_context_is_what_the_package_is_built_from():
    names = build_context(ROOT)
    assert {"judgelm/package.py", "pyproject.toml", "Makefile", "train/sft.py", "LICENSE"} <= set(names)
    folders = {name.partition("/")[0] for name in names if "/" in name}
    assert folders == {"configs", "examples", "judgelm", "serve", "train"}
    assert [name for name in names if name.endswith(WEIGHTS)] == []


def words_of(keyword):
    """The words of the runtime stage's last instruction of a kind, in its JSON form."""
    texts = [step.text for step in CPU["runtime"] if step.word == keyword]
    return json.loads(re.search(r"\[.*\]", texts[-1])[0])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_its_steps_make_an_image_that_serves_checks_itself_and_stops(tmp_path):
    hidden = ("PYTHON", "VIRTUAL_ENV", "JUDGELM", "MAKE", "EXTRAS")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    inherited["PATH"] = f"{Path(sys.base_prefix, 'bin')}{os.pathsep}{inherited['PATH']}"
    extra_index = os.environ.get("PIP_EXTRA_INDEX_URL")  # pip's settings here name the index with torch for CPUs
    image = Image(root=tmp_path, checkout=ROOT, environment=inherited, arguments={"PIP_EXTRA_INDEX_URL": extra_index})
    image.follow(CPU["build"])
    variables = inherited | image.follow(CPU["runtime"])
    assert {command.split()[0] for command in image.left_out} == {"apt-get", "rm", "groupadd", "useradd"}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*words_of("ENTRYPOINT"), "serve", "8 6", "--engine", "scripted", "--port", str(port), "--quiet"]
    server = subprocess.Popen(command, env=variables, cwd=tmp_path / "work")
    try:
        health = [word.replace(":8000", f":{port}") for word in words_of("HEALTHCHECK")]
        until = time.monotonic() + 120
        while subprocess.run(health, env=variables, capture_output=True, check=False).returncode:
            assert time.monotonic() < until
            time.sleep(0.5)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    finally:
        server.kill()
