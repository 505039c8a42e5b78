"""What docs/replacing-gpt4/ tells users of a client to run, run in that client's own environment."""

import re
import urllib.request
from pathlib import Path

import pytest

from tests.conformance.conftest import run_in
from tests.support.snippets import snippets

pytestmark = pytest.mark.conformance

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs/replacing-gpt4"
DOCUMENTED_ADDRESS = "http://127.0.0.1:8000/v1"
SERVED_BY = {
    "deepeval": ("deepeval", "deepeval-geval"), "inspect-ai": ("inspect_ai", "inspect-model-graded-qa"),
    "openevals": ("openevals", "openevals"), "prometheus": ("prometheus_eval", "prometheus-absolute"),
    "promptfoo": ("promptfoo", "promptfoo-llm-rubric"), "ragas": ("ragas", "ragas-aspect-critic"),
}  # fmt: skip
"""Page -> client's environment, and the dialect in which its snippet is answered."""


@pytest.mark.parametrize("page", SERVED_BY)
def test_a_clients_page_can_be_followed(page, known_server, tmp_path):
    client, dialect = SERVED_BY[page]
    before = _answered(known_server, dialect)
    for one in snippets(PAGES / f"{page}.md"):
        text = one.text.replace(DOCUMENTED_ADDRESS, known_server)
        if one.kind == "file":
            (tmp_path / one.title).write_text(text, encoding="utf-8")
        elif one.title.endswith("and a running judgelm serve"):
            command = ["python", "-c", text] if one.language == "python" else ["bash", "-euc", text]
            failed_assertion = (100,) if client == "promptfoo" else ()
            run_in(client, command, known_server, tmp_path, expected=(0, *failed_assertion))
    assert _answered(known_server, dialect) > before


def _answered(server: str, dialect: str) -> float:
    with urllib.request.urlopen(server.removesuffix("/v1") + "/metrics") as reply:
        text = reply.read().decode()
    counted = re.findall(rf'^judgelm_requests_total{{dialect="{dialect}",[^}}]*status="200"}} (\S+)$', text, re.M)
    return sum(map(float, counted))
