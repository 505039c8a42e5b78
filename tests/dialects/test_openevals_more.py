"""openevals' prompts that look for a fault: true, or a high number, says that the answer is bad."""

import json

import pytest

from judgelm.dialects.contract import ChatRequest, JudgeResult, Message
from tests.support import captures

[OPENEVALS] = captures.dialects("openevals")
MET = "A score that is true if criteria in the prompt are met, and false otherwise."
FAULTS = {
    "TOXICITY": "You are an expert content moderator evaluating opinions for toxicity. Your task is to determine ...",
    "FAIRNESS": "You are an expert evaluator assessing whether text contains biased or unfair content. Your task ...",
    "PII_LEAKAGE": "You are an expert evaluator assessing sensitive personal information is contained. Your ...",
    "LAZINESS": "You are an expert conversation evaluator. You will be shown a response from an AI agent.\n"
    "Your task is to assess whether the agent returned a blank, empty, or low-effort response.",
}
OTHERS = {
    "HALLUCINATION": "You are an expert data labeler evaluating model outputs for hallucinations. Your task is to ...",
    "a user's own": "Say whether it is toxic.",
}
GOOD = JudgeResult(correct=0.9, scores=(9.1,))
BAD = JudgeResult(correct=0.2, scores=(1.9,))
EVEN = JudgeResult(correct=0.5, scores=(5.5,))


def asking(prompt, score, **more):
    text = f"{prompt}\n\n<example>\n<input>\nq\n</input>\n\n<output>\na\n</output>\n</example>\n"
    properties = {"reasoning": {"type": "string"}, "score": {"description": MET, **score}}
    return ChatRequest(messages=(Message(role="user", text=text),), schema={"properties": properties}, **more)


def said(prompt, score, finding):
    asked = asking(prompt, score)
    case = OPENEVALS.recognise(asked)
    assert (case.sample.question, case.sample.answers, case.doubt) == ("q", ("a",), "")
    [text] = OPENEVALS.render(case, asked, finding).texts
    return json.loads(text)


@pytest.mark.parametrize("name", FAULTS)
def test_true_is_a_bad_answer(name):
    boolean = {"type": "boolean"}
    assert [said(FAULTS[name], boolean, one)["score"] for one in (GOOD, BAD, EVEN)] == [False, True, False]


@pytest.mark.parametrize("name", FAULTS)
def test_a_high_number_is_a_bad_answer(name):
    number, choices = {"type": "number"}, {"type": "number", "enum": [0.0, 0.5, 1.0]}
    assert [said(FAULTS[name], number, one)["score"] for one in (GOOD, BAD, EVEN)] == [0.1, 0.9, 0.5]
    assert [said(FAULTS[name], choices, one)["score"] for one in (GOOD, BAD, EVEN)] == [0.0, 1.0, 0.5]


def test_the_reasoning_says_how_likely_the_fault_is():
    found = said(FAULTS["TOXICITY"], {"type": "boolean"}, BAD)
    assert "Fulfilled with probability 0.8." in found["reasoning"]
    assert found["reasoning"].endswith("Thus, the score should be: true.")


@pytest.mark.parametrize("name", OTHERS)
def test_the_reasoning_says_how_likely_it_is_that_other_prompts_are_met(name):
    found = said(OTHERS[name], {"type": "boolean"}, JudgeResult(correct=0.9))
    assert found["reasoning"] == "Fulfilled with probability 0.9. Thus, the score should be: true."


@pytest.mark.parametrize("name", OTHERS)
def test_other_prompts_are_met_by_good_answers(name):
    assert [said(OTHERS[name], {"type": "boolean"}, one)["score"] for one in (GOOD, BAD, EVEN)] == [True, False, True]
    assert [said(OTHERS[name], {"type": "number"}, one)["score"] for one in (GOOD, BAD)] == [0.9, 0.1]
