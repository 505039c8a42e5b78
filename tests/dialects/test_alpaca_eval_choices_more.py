"""AlpacaEval's annotators with a worked example: templates, rebuilt, and what their parsers make of our replies."""

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.catalog import recognise
from judgelm.dialects.contract import ChatRequest, JudgeResult, Message, Tool
from tests.support import captures

DIALECTS = captures.dialects("alpaca-eval-choice", "alpaca-eval-letter")

RANKINGS = captures.dialects(
    "alpaca-eval-ranking", "alpaca-eval-function", "alpaca-eval-identifier", "alpaca-eval-batch"
)

CHOICE, LETTER = DIALECTS
RANKING = RANKINGS[0]
EXAMPLE = "## Instruction:\nGive a description\n\n## Output {a}:\nA doctor.\n\n## Output {b}:\nA joker.\n\n"
TEMPLATES = {
    "alpaca-eval-choice": (
        "Select the output (a) or (b) that best matches the given instruction.\n\n# Example:\n"
        + EXAMPLE.format(a="(a)", b="(b)")
        + "## Which is best, Output (a) or Output (b)?\nOutput (a)\n\nHere the answer is Output (a).\n\n# Task:\n"
        "Now is the real task, do not explain your answer, just say Output (a) or Output (b).\n\n## Instruction:\n"
        "<q>\n\n## Output (a):\n<1>\n\n## Output (b):\n<2>\n\n## Which is best, Output (a) or Output (b)?"
    ),
    "alpaca-eval-letter": (
        "Select the output A or B that best matches the given instruction.\n\n# Example:\n"
        + EXAMPLE.format(a="A", b="B")
        + "## Which is best, A or B?\nA\n\nHere the answer is A.\n\n# Task:\nNow is the real task, do not explain your "
        "answer, just say A or B.\n\n## Instruction:\n<q>\n\n## Output A:\n<1>\n\n## Output B:\n<2>\n\n"
        "## Which is best, A or B?"
    ),
    "alpaca-eval-letter explained": (
        "Select the output A or B that best matches the given instruction.\n\n# Example:\n"
        + EXAMPLE.format(a="A", b="B")
        + "## Concise explanation followed by `A` or `B`\n\n### Concise explanation\nA is better.\n\n"
        "### Which is best, `A` or `B`?\nA\n\n# Task:\nNow is the real task.\n\n## Instruction:\n<q>\n\n"
        "## Output `A`:\n<1>\n\n## Output `B`:\n<2>\n\n## Concise explanation followed by `A` or `B`\n\n"
        "### Concise explanation"
    ),
    "alpaca-eval-ranking": (
        "You are given a prompt and a list of responses\nfrom several models in Python dictionary format.\n\n"
        "The prompt is: <q>\nThe responses are: [\n{'model': model_1, 'result': <1> },\n"
        "{'model': model_2, 'result': <2> },\n]\n\nPlease rank the responses by quality, and return a list of the "
        "model\nnames and ranks\n\nThink step by step and give me this quality ranking"
    ),
}
TEXTS = [
    ("What is 2 + 2?", "4", "5"),
    ("", "", ""),
    ("a\n\nb", "first\n\n## Which", "{second}\n# Task:\nNow is the real task"),
    ("# Example:\n## Instruction:", "Output (b)", "Output (a)\nA\nB"),
]
PAIRS = [
    (JudgeResult(winner=1, scores=(8.0, 6.0), first_better=0.9), 1),
    (JudgeResult(winner=2, scores=(6.0, 8.0), first_better=0.1), 2),
    (JudgeResult(winner="tie", scores=(7.0, 7.0), first_better=0.6), 1),
    (JudgeResult(winner="tie", scores=(7.0, 7.0), first_better=0.4), 2),
]
BEST = Tool(name="print_best_model", parameters={"properties": {"best_output": {"type": "string"}}})


def asking(kind, texts=TEXTS[0], **more):
    text = TEMPLATES[kind].replace("<q>", texts[0]).replace("<1>", texts[1]).replace("<2>", texts[2])
    system = Message(role="system", text="You are a helpful instruction-following assistant.")
    return ChatRequest(messages=(system, Message(role="user", text=text)), **more)


def parsed_choice(text):
    """The client's two patterns, in the order in which they are found."""
    found = re.findall(r"(?:^|\n) ?Output \(([ab])\)", text)
    return ["ab".index(one) + 1 for one in found]


def parsed_call(arguments):
    return ["ab".index(one.lower()) + 1 for one in re.findall(r"(?i)output \(([ab])\)", arguments)]


def preference(places, *, last):
    """2 - P(A) / (P(A) + P(B)) at the only token, or at the last."""
    assert last or len(places) == 1
    chances = {token: math.exp(logprob) for token, logprob in places[-1].candidates if token in "AB"}
    return 2 - chances.get("A", 0) / sum(chances.values())


@pytest.mark.parametrize("texts", TEXTS)
@pytest.mark.parametrize("kind", TEMPLATES)
def test_each_template_is_its_own_dialect_and_split_exactly(kind, texts):
    dialect, case = recognise(asking(kind, texts))
    assert dialect.name == case.dialect == kind.split()[0]
    assert (case.sample.question, case.sample.answers) == (texts[0], texts[1:])
    assert case.kind == "pair"
    assert case.facts["explanation"] is (kind == "alpaca-eval-letter explained")


@pytest.mark.parametrize("kind", list(TEMPLATES)[:3])
def test_answers_that_imitate_the_template_leave_a_doubt(kind):
    inner = {"alpaca-eval-choice": "(b)", "alpaca-eval-letter": "B"}.get(kind, "`B`")
    _, case = recognise(asking(kind, ("q", f"x\n\n## Output {inner}:\ny", "z")))
    assert case.doubt
    assert not recognise(asking(kind))[1].doubt


@pytest.mark.parametrize("kind", list(TEMPLATES)[:3])
def test_a_prompt_that_only_resembles_one_is_none(kind):
    whole = asking(kind)
    user = whole.messages[1].text
    for changed in (user + "\nPlease.", user.replace("Now is the real task", "Now"), "Hello. " + user):
        assert recognise(ChatRequest(messages=(whole.messages[0], Message(role="user", text=changed)))) is None


@pytest.mark.parametrize(("finding", "winner"), PAIRS)
def test_a_choice_is_one_line_or_one_call(finding, winner):
    asked = asking("alpaca-eval-choice", max_tokens=50)
    case = CHOICE.recognise(asked)
    [text] = CHOICE.render(case, asked, finding).texts
    assert parsed_choice(text) == [winner]
    called = asking("alpaca-eval-choice", tools=(Tool(name="other"), BEST), forced_tool=BEST.name)
    reply = CHOICE.render(case, called, finding)
    assert (reply.tool, reply.texts) == ("print_best_model", ())
    assert parsed_call(reply.arguments) == [winner]
    assert json.loads(reply.arguments).keys() == {"best_output"}


@given(chance=st.floats(0, 1), explains=st.booleans())
def test_a_letter_carries_the_probability(chance, explains):
    kind = "alpaca-eval-letter explained" if explains else "alpaca-eval-letter"
    asked = asking(kind, logprobs=True, top_logprobs=5, max_tokens=300 if explains else 1)
    finding = JudgeResult(winner="tie", scores=(7.1, 6.9), first_better=chance, reason="A is better than B. A!")
    reply = LETTER.render(LETTER.recognise(asked), asked, finding)
    assert "".join(one.token for one in reply.logprobs) == reply.texts[0]
    assert preference(reply.logprobs, last=explains) == pytest.approx(2 - chance, abs=1e-9)
    assert re.findall(r"\b[AB]\b", reply.texts[0]) == [reply.logprobs[-1].token]
    assert (len(reply.texts[0]) > 1) is explains


@pytest.mark.parametrize(("finding", "winner"), PAIRS)
def test_the_aviary_prompt_gets_the_literal(finding, winner):
    asked = asking("alpaca-eval-ranking", max_tokens=2048)
    [text] = RANKING.render(RANKING.recognise(asked), asked, finding).texts
    assert text == f"[{{'model': 'model_1', 'rank': {winner}}}, {{'model': 'model_2', 'rank': {3 - winner}}}]"
