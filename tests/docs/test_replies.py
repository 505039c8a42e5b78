"""The replies that docs/replacing-gpt4/ shows are what the dialects render for one and the same finding."""

from pathlib import Path

import pytest

from judgelm.dialects.catalog import DIALECTS
from judgelm.dialects.contract import ChatRequest, JudgeResult, JudgeTask, sample_of
from tests.support.snippets import snippets

DOCS = Path(__file__).parents[2] / "docs"
REASON = "The first answer names the number, the second does not."
FINDINGS = {
    "pair": JudgeResult(winner=1, scores=(8.2, 6.1), first_better=0.87, tie=0.06, reason=REASON),
    "grade": JudgeResult(scores=(8.2,), grades=((8.0, 0.8), (9.0, 0.2)), reason=REASON),
    "label": JudgeResult(correct=0.91, reason=REASON),
}
GRADES = {
    **dict.fromkeys(("autoj-single", "fastchat-single", "rewardbench-ratings"), (1.0, 10.0)),
    **dict.fromkeys(("flowjudge", "geval", "prometheus-absolute", "ragas-rubrics"), (1.0, 5.0)),
    "deepeval-geval": (0.0, 10.0),
    "llmbar-rating": (0.0, 9.0),
}
LABELS = {
    "agentevals", "inspect-model-graded-qa", "openevals", "promptfoo-closedqa", "promptfoo-llm-rubric",
    "ragas-aspect-critic", "simpleqa",
}  # fmt: skip
FACTS = {
    "agentevals": {"choices": (), "reasoning": True, "fault": False},
    "arena-hard": {"labels": ("A>>B", "A>B", "A=B", "B>A", "B>>A")},
    "llmbar-choice": {"explanation": True},
    "openevals": {"choices": (), "reasoning": True, "fault": False},
}
SHOWN = [
    pytest.param(one.title.removeprefix("Reply: "), one.text, id=one.place)
    for page in sorted(DOCS.rglob("*.md"))
    for one in snippets(page)
    if one.title.startswith("Reply: ")
]


@pytest.mark.parametrize(("name", "shown"), SHOWN)
def test_a_reply_is_what_its_dialect_renders(name, shown):
    [dialect] = [one for one in DIALECTS if one.name == name]
    task = "grade" if name in GRADES else "label" if name in LABELS else "pair"
    sample = sample_of("What is 2 + 2?", ("4", "5") if task == "pair" else ("4",))
    case = JudgeTask(dialect=name, kind=task, sample=sample, scale=GRADES.get(name), facts=FACTS.get(name, {}))
    reply = dialect.render(case, ChatRequest(messages=()), FINDINGS[task])
    assert (*reply.texts, reply.arguments)[0].strip() == shown.strip()


def test_every_client_that_is_named_exists_and_every_dialect_is_named():
    named = (DOCS / "replacing-gpt4/index.md").read_text(encoding="utf-8")
    families = {dialect.name.split("-")[0] for dialect in DIALECTS}
    missing = sorted(family for family in families if f"`{family}" not in named)
    assert missing == []
