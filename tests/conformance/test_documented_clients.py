"""What docs/replacing-gpt4/ tells users of a client to run, run in that client's own environment."""

import os
import re
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.support.snippets import Snippet, snippets

pytestmark = pytest.mark.conformance

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / ".conformance"
PAGES = ROOT / "docs/replacing-gpt4"
DOCUMENTED_ADDRESS = "http://127.0.0.1:8000/v1"
SERVED_BY = {
    "deepeval": ("deepeval", "deepeval-geval"),
    "inspect-ai": ("inspect_ai", "inspect-model-graded-qa"),
    "openevals": ("openevals", "openevals"),
    "prometheus": ("prometheus_eval", "prometheus-absolute"),
    "promptfoo": ("promptfoo", "promptfoo-llm-rubric"),
    "ragas": ("ragas", "ragas-aspect-critic"),
}
"""Page -> client's environment, and the dialect in which its snippet is answered."""


@pytest.mark.parametrize("page", SERVED_BY)
def test_a_clients_page_can_be_followed(page, known_server, tmp_path):
    client, dialect = SERVED_BY[page]
    if not (CLIENTS / client / "requirements.json").is_file():
        pytest.skip(f"{client} is not installed: python tests/conformance/build_clients.py {client}")
    before = _answered(known_server, dialect)
    for one in snippets(PAGES / f"{page}.md"):
        text = one.text.replace(DOCUMENTED_ADDRESS, known_server)
        if one.kind == "file":
            (tmp_path / one.title).write_text(text, encoding="utf-8")
        elif one.title.endswith("and a running judgelm serve"):
            _run(one, text, CLIENTS / client, tmp_path)
    assert _answered(known_server, dialect) > before


def _run(one: Snippet, text: str, environment: Path, folder: Path) -> None:
    command = ["python", "-c", text] if one.language == "python" else ["bash", "-euc", text]
    programs = [environment / "venv" / "bin", environment / "node_modules" / ".bin"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "PYTHON", "JUDGELM_"))}
    done = subprocess.run(
        command,
        cwd=folder,
        env=kept
        | {"PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]), "OPENAI_API_KEY": "unused"}
        | {"DEEPEVAL_TELEMETRY_OPT_OUT": "YES", "PROMPTFOO_CONFIG_DIR": str(folder)}
        | {f"PROMPTFOO_DISABLE_{name}": "1" for name in ("TELEMETRY", "UPDATE", "REMOTE_GENERATION")},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    failed_assertion = environment.name == "promptfoo" and done.returncode == 100
    assert done.returncode == 0 or failed_assertion, f"{one.place}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"


def _answered(server: str, dialect: str) -> float:
    with urllib.request.urlopen(server.removesuffix("/v1") + "/metrics") as reply:
        text = reply.read().decode()
    counted = re.findall(rf'^judgelm_requests_total{{dialect="{dialect}",[^}}]*status="200"}} (\S+)$', text, re.M)
    return sum(map(float, counted))
