"""Prompt files on servers that continue a reply, and on servers that do not."""

import pytest

from judgelm.modes.label import PromptLabel
from judgelm.prompts.prompt_file import parse_prompts
from judgelm.records import Sample
from judgelm.runs.runner import judge
from tests.support.endpoint.backends import ScriptedBackend
from tests.support.endpoint.client import client
from tests.support.endpoint.server import endpoint

FILE = """
prompt: "Question: {question}\\nAnswer: {answer}\\nRight?"
reply:
  label: {fulfilled: Yes, failed: No}
  reason: 20
  text: "{reason}\\nVerdict: {verdict}"
"""


@pytest.mark.parametrize(("logprobs", "note"), [(True, "complete reply"), (False, "sampled replies")])
def test_a_server_that_cannot_continue_is_read_in_a_complete_reply_with_a_note(logprobs, note):
    [prompt] = parse_prompts(FILE, "right.yaml")
    script = {"": {"It is": 1.0}, "It is": {" right.\n": 1.0}, "It is right.\n": {"Verdict:": 1.0}}
    backend = ScriptedBackend(script | {"It is right.\nVerdict:": {" Yes": 0.75, " No": 0.25}}, marker="Right?")
    with (
        endpoint(backend, refuses=("continue_final_message",), logprobs=logprobs) as server,
        client(server, api="chat", candidate_samples=4) as engine,
    ):
        sample = Sample(id="1", question="2 + 2?", answers=("4",))
        [judgment] = judge([sample], PromptLabel(prompt=prompt), engine)
    [shown] = judgment.shown
    assert judgment.verdict.label == "yes"
    assert shown.reason == "It is right."
    assert note in shown.grades.approximation
    assert judgment.probability == pytest.approx(0.75) or not logprobs
