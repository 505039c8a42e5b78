"""The documented ways of clients and frameworks to use judgelm, run unchanged in their own environments."""

import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.conformance.conftest import run_in
from tests.support.jsonl_files import rows_of
from tests.support.known_judge import quality
from tests.support.processes import run_command
from tests.support.snippets import snippets

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ("inspect_ai==0.3.285", "lm_eval==0.4.13", "lighteval==0.13.0")

pytestmark = pytest.mark.conformance


@pytest.mark.timeout(1200)
def test_each_framework_gets_grades_and_no_grade_for_a_failure(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env/bin/python"
    subprocess.run([python, "-m", "pip", "install", "-qq", "torch", *FRAMEWORKS, str(ROOT)], check=True)
    driver = ROOT / "tests/conformance/drivers/integrations.py"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = run_command(python, "-P", driver, cwd=tmp_path, env=environment)
    inspect, lm_eval, lighteval = json.loads(done.stdout.splitlines()[-1])
    assert inspect == [[7.0, None], [None, "unparseable"]]
    assert lm_eval == [{"judge_failed": 0.0, "judge_score": 7.0}, {"judge_failed": 1.0}]
    assert lighteval == [[7.0, 0.0], [7.0, 1.0]]  # the mean leaves the failed one out


HOST_LOG = Path(__file__).parent / "host_log"
"""A sitecustomize.py: clients in Python write down which hosts they contact."""

EXAMPLES = ROOT / "examples/integrations"
ROWS = rows_of(EXAMPLES / "answers.jsonl")
QUALITIES = {row["id"]: quality(row["answer"]) for row in ROWS}


def on_unit_scale(level):
    return pytest.approx((level - 1) / 9, abs=1e-4)


SCORES = {
    "deepeval": on_unit_scale,
    "inspect_ai": lambda level: "C" if level >= 6 else "I",  # most of the probability above 5.5
    "langfuse": lambda level: level,
    "langsmith": on_unit_scale,
    "openevals": on_unit_scale,
    "ragas": lambda level: round(1 + (level - 1) / 9 * 4),
}
"""Client -> the score that its example prints for an answer of this quality."""


@pytest.mark.parametrize("name", SCORES)
def test_the_example_prints_the_judges_scores(name, known_server, tmp_path):
    output = _run(name, ["python", str(EXAMPLES / f"with_{name}.py")], known_server, tmp_path)
    printed = dict(line.split("\t") for line in output.splitlines() if "\t" in line)
    scores = {row: score if score in "CI" else float(score) for row, score in printed.items()}
    assert scores == {row: SCORES[name](level) for row, level in QUALITIES.items()}


def test_promptfoos_configuration(known_server, tmp_path):
    command = ["promptfoo", "eval", "-c", str(EXAMPLES / "with_promptfoo.mjs"), "--no-cache", "-o", "results.json"]
    _run("promptfoo", command, known_server, tmp_path, expected=100)  # some answers are wrong
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["results"]["results"]
    passed = {result["vars"]["id"]: result["success"] for result in results}
    assert passed == {row: level >= 6 for row, level in QUALITIES.items()}


def test_lm_evals_task(known_server, tmp_path):
    with _model_under_evaluation() as address:
        command = ["lm_eval", "--include_path", str(EXAMPLES / "lm_eval"), "--tasks", "judged_answers"]
        command += ["--model", "local-chat-completions", "--model_args", f"model=written,base_url={address}"]
        command += ["--apply_chat_template", "--log_samples", "--output_path", str(tmp_path)]
        _run("lm_eval", command, known_server, tmp_path)
    [samples] = tmp_path.rglob("samples_judged_answers_*.jsonl")
    assert {row["doc"]["id"]: row["judge_score"] for row in rows_of(samples)} == QUALITIES
    [results] = tmp_path.rglob("results_*.json")
    metrics = json.loads(results.read_text(encoding="utf-8"))["results"]["judged_answers"]
    assert metrics["judge_score,none"] == pytest.approx(sum(QUALITIES.values()) / len(QUALITIES))
    assert metrics["judge_failed,none"] == 0


REFUSED = {
    "lm_eval": """
from lm_eval.tasks.pisa.utils import judge_mcq
judge_mcq("B", ["A) 3", "B) 4"], "B) 4")
""",
    "ragas": """
import asyncio, openai
from ragas.llms import llm_factory
from ragas.metrics.collections import Faithfulness
metric = Faithfulness(llm=llm_factory("gpt-4o", client=openai.AsyncOpenAI()))
asyncio.run(metric.ascore(user_input="2 + 2?", response="4", retrieved_contexts=["2 + 2 is 4."]))
""",
}
"""Client -> a judge of its own, whose prompts the server does not recognise."""


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_served_is_refused(name, known_server, tmp_path):
    code = f"import os\nos.environ['RAGAS_DO_NOT_TRACK'] = 'true'\n{REFUSED[name]}"
    errors = _run(name, ["python", "-c", code], known_server, tmp_path, expected=1, stream="stderr")
    assert "unrecognised judge prompt" in errors


def _run(client, command, server, folder, expected=0, stream="stdout"):
    """What a command of the client's environment writes; it contacts no other machine."""
    cwd = ROOT if client == "lm_eval" else None  # its data file is named from there
    hosts = folder / "hosts.txt"
    log = {"PYTHONPATH": str(HOST_LOG), "HOST_LOG": str(hosts), "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub")}
    done = run_in(client, command, server, folder, expected=(expected,), cwd=cwd, **log)
    assert client == "promptfoo" or set(hosts.read_text(encoding="utf-8").split()) == {"127.0.0.1"}
    return getattr(done, stream)


@contextmanager
def _model_under_evaluation():
    """A chat model that gives the written answer to each question."""
    answers = {row["question"]: row["answer"] for row in ROWS}

    class Chat(BaseHTTPRequestHandler):
        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            content = request["messages"][-1]["content"]
            question = content if isinstance(content, str) else content[0]["text"]
            message = {"role": "assistant", "content": answers[question.strip()]}
            body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Chat)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/chat/completions"
    finally:
        server.shutdown()


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
    for one in snippets(ROOT / f"docs/replacing-gpt4/{page}.md"):
        text = one.text.replace("http://127.0.0.1:8000/v1", known_server)
        if one.kind == "file":
            (tmp_path / one.title).write_text(text, encoding="utf-8")
        elif one.title.endswith("and a running judgelm serve"):
            command = ["python", "-c", text] if one.language == "python" else ["bash", "-euc", text]
            codes = (0, 100) if client == "promptfoo" else (0,)  # 100: an assertion failed
            run_in(client, command, known_server, tmp_path, expected=codes)
    assert _answered(known_server, dialect) > before


def _answered(server: str, dialect: str) -> float:
    with urllib.request.urlopen(server.removesuffix("/v1") + "/metrics") as reply:
        text = reply.read().decode()
    counted = re.findall(rf'^judgelm_requests_total{{dialect="{dialect}",[^}}]*status="200"}} (\S+)$', text, re.M)
    return sum(map(float, counted))
