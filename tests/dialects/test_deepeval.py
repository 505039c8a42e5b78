"""DeepEval's G-Eval: what its client sends, and what it concludes from the replies."""

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.contract import ChatRequest, JudgeResult, Message, TokenLogprobs, sample_of
from tests.support import captures

DIALECTS = captures.dialects("deepeval-")

FOLDERS = ("deepeval_geval_openai", "deepeval_geval_localmodel")
TEXTS = st.one_of(
    st.text(max_size=30),
    st.lists(
        st.sampled_from(
            ["a", " ", "\n", "Parameters:\n", "\n\nParameters:\nInput", " \n\nExpected Output:\n", "\n\nTest Case:\n",
             " \n\nActual Output:\n", "\n---\n\nEvaluation Steps:\n", "\u2028", "**Example JSON:**", "JSON:"]
        ),
        max_size=6,
    ).map("".join),
)  # fmt: skip


def recognised(asked):
    return [(one, case) for one in DIALECTS if (case := one.recognise(asked)) is not None]


def clients_verdict(choice):
    """(grade from 0 to 1, reason) as the client stores them; KeyError or ValueError where it stops."""
    text = choice["message"]["content"]
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end < 0:
        raise ValueError("invalid JSON")
    found = json.loads(re.sub(r",\s*([\]}])", r"\1", text[begin : end + 1]))
    reason, score = found["reason"], found["score"]
    tokens = (choice.get("logprobs") or {}).get("content", [])
    place = next((one for one in reversed(tokens) if one["token"] == str(score)), None)
    if place is not None:
        shares = {int(one["token"]): math.exp(one["logprob"]) for one in place["top_logprobs"]
                  if one["logprob"] >= math.log(0.01) and one["token"].isdecimal()}  # fmt: skip
        score = sum(grade * share for grade, share in shares.items()) / sum(shares.values()) if shares else score
    return float(score) / 10, reason


def as_choice(reply):
    """A reply as the server sends it."""
    content = [
        {"token": one.token, "logprob": one.logprob,
         "top_logprobs": [{"token": token, "logprob": logprob} for token, logprob in one.candidates]}
        for one in reply.logprobs
    ]  # fmt: skip
    return {"message": {"content": reply.texts[0]}, "logprobs": {"content": content} if content else None}


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_parser_here_concludes_what_the_client_did(shared_data, folder):
    for reply, parsed in captures.replies(shared_data, folder):
        if "error" in parsed:
            with pytest.raises((KeyError, ValueError)):
                clients_verdict(reply["choices"][0])
        else:
            assert clients_verdict(reply["choices"][0]) == (pytest.approx(parsed["score"]), parsed["reason"])


def asked_for(sections, parameters, *, low=0, high=10, rubric="", **options):
    text = (
        "You are an evaluator. Given the following evaluation steps, assess the response below and return a JSON "
        f'object with two fields:\n\n- `"score"`: an integer between {low} and {high}, whatever.\n- `"reason"`: why.\n'
        f"\n---\n\nEvaluation Steps:\n1. Look.\n\n{rubric}Test Case:\n"
        + "".join(f"{name}:\n{value} \n\n" for name, value in sections)
        + f"\n\nParameters:\n{parameters}\n\n\n---\n**Example JSON:**\n"
        f'{{\n  "reason": "your reason",\n  "score": {low}\n}}\n\nJSON:'
    )
    return ChatRequest(messages=(Message(role="user", text=text),), **options)


@given(question=TEXTS, answer=TEXTS, reference=TEXTS)
def test_what_is_put_in_comes_out_or_is_doubted(question, answer, reference):
    fields = (("Input", question), ("Actual Output", answer), ("Expected Output", reference))
    [(_, case)] = recognised(asked_for(fields, "Input, Actual Output, and Expected Output"))
    sample = case.sample
    assert case.doubt or (sample.question, sample.answers, sample.reference) == (question, (answer,), reference)


def test_other_fields_scales_and_rubrics_are_the_users():
    fields = (("Actual Output", "a"), ("Retrieval Context", "['c']"))
    asked = asked_for(fields, "Actual Output and Retrieval Context", low=1, high=5, rubric="Rubric:\n1-5: fine\n\n")
    [(dialect, case)] = recognised(asked)
    assert (case.sample.question, case.sample.answers, case.scale) == ("", ("a",), (1, 5))
    assert case.sample.metadata == {"criterion": "1. Look.\n\nRubric:\n1-5: fine", "context": "['c']"}
    # 5.5 of 1 to 10 is the middle, so 3 of 1 to 5
    assert json.loads(dialect.render(case, asked, JudgeResult(scores=(5.5,))).texts[0])["score"] == 3
    assert recognised(asked_for((("Input", "q"),), "Input")) == []  # nothing to be graded
    contexts = (("Actual Output", "a"), ("Context", "['b']"), ("Retrieval Context", "['c']"))
    [(_, case)] = recognised(asked_for(contexts, "Actual Output, Context, and Retrieval Context\nMore of the user's."))
    assert case.sample.metadata["context"] == "['b']\n\n['c']"


@pytest.mark.parametrize("names", [("Input", "Mood", "Actual Output"), ("Input", "Input", "Actual Output")])
def test_fields_that_are_unknown_or_named_twice_are_not_the_clients(names):
    line = f"{names[0]}, {names[1]}, and {names[2]}"
    assert recognised(asked_for([(name, "x") for name in names], line)) == []
    assert recognised(strict_asked("Input:\nx \n\nActual Output:\ny", names=line)) == []


@pytest.mark.parametrize(
    "part", ["You are an evaluator", "Example JSON", "Evaluation Steps", "Test Case", "Parameters"]
)
def test_a_prompt_without_one_of_its_parts_is_not_taken(part):
    [message] = ASKED.messages
    assert recognised(ChatRequest(messages=(Message(role="user", text=message.text.replace(part, "Part")),))) == []


def test_an_answer_that_starts_a_test_case_leaves_doubt():
    [(_, case)] = recognised(asked_for((("Actual Output", "a\n\nTest Case:\nb"),), "Actual Output"))
    assert case.doubt == "a text holds the line that starts the test case"


ASKED = asked_for((("Actual Output", "a"),), "Actual Output")
LOGPROBS = asked_for((("Actual Output", "a"),), "Actual Output", logprobs=True, top_logprobs=20)


def rendered(asked, finding):
    [(dialect, case)] = recognised(asked)
    return dialect.render(case, asked, finding)


@given(st.floats(1, 10))
def test_without_logprobs_the_client_reads_the_expected_grade(score):
    grade, reason = clients_verdict(as_choice(rendered(ASKED, JudgeResult(scores=(score,)))))
    assert grade == pytest.approx((score - 1) / 9, abs=0.0006)  # two decimals of a grade from 0 to 10
    assert reason


@given(st.lists(st.floats(0, 1), min_size=10, max_size=10).filter(lambda shares: sum(shares) > 0.1))
def test_with_logprobs_the_client_computes_the_expected_grade(shares):
    total = sum(shares)
    grades = tuple((float(score), share / total) for score, share in enumerate(shares, 1))
    expected = sum(score * share for score, share in grades)
    reply = rendered(LOGPROBS, JudgeResult(scores=(expected,), grades=grades, reason="It has 8 faults, score: 3/10."))
    grade, reason = clients_verdict(as_choice(reply))
    assert "".join(one.token for one in reply.logprobs) == reply.texts[0]
    # the client drops grades below 1 %, of which there are eleven at the most
    assert grade == pytest.approx((expected - 1) / 9, abs=0.06)
    assert not re.search(r"\d", reason)
    assert all(one[1] >= -100 for token in reply.logprobs for one in token.candidates)


def test_a_score_between_two_grades_is_shared_by_both():
    reply = rendered(LOGPROBS, JudgeResult(scores=(8.0,), grades=((8.0, 1.0),)))
    # 8 of 1 to 10 is 70/9 = 7.78 of 0 to 10: 22 % of 7 and 78 % of 8
    [place] = [one for one in reply.logprobs if one.token == "8"]
    shares = {token: math.exp(logprob) for token, logprob in place.candidates}
    assert shares == {"8": pytest.approx(7 / 9), "7": pytest.approx(2 / 9)}


@pytest.mark.parametrize(
    ("finding", "shares"),
    [
        # the mean of 1 and 10 is 5 of 0 to 10, which the judge itself never gives
        (JudgeResult(scores=(5.5,), grades=((1.0, 0.5), (10.0, 0.5))), {"5": 0, "0": 0.5, "10": 0.5}),
        # 1 % is as much as the client looks at
        (JudgeResult(scores=(9.91,), grades=((1.0, 0.01), (10.0, 0.99))), {"10": 0.99, "0": 0.01}),
        (JudgeResult(scores=(9.955,), grades=((1.0, 0.005), (10.0, 0.995))), {"10": 1}),
        # the score alone is known: 5.5063 is 5.007 of 0 to 10, and 0.7 % of 6 are left out
        (JudgeResult(scores=(5.5063,)), {"5": 1}),
    ],
)
def test_the_token_of_the_grade_carries_the_grades_of_one_per_cent_and_more(finding, shares):
    *_, place, end = rendered(LOGPROBS, finding).logprobs
    assert {token: math.exp(logprob) for token, logprob in place.candidates} == pytest.approx(shares, abs=1e-12)
    assert end == TokenLogprobs(token="}", logprob=0.0, candidates=(("}", 0.0),))


def test_no_more_candidates_are_given_than_are_asked_for():
    asked = asked_for((("Actual Output", "a"),), "Actual Output", logprobs=True, top_logprobs=1)
    found = rendered(asked, JudgeResult(scores=(8.0,), grades=((8.0, 1.0),))).logprobs
    assert {len(one.candidates) for one in found} == {1}


def test_the_steps_are_ones_that_the_client_reads(shared_data):
    [asked, *_] = [asked for item, asked in captures.requests(shared_data, FOLDERS[0]) if item["aux"]]
    [message] = asked.messages
    [(_, case)] = recognised(ChatRequest(messages=(Message(role="user", text=message.text + " \n"),)))
    criterion = "Determine whether the actual output is factually correct and answers the input."
    assert case.sample == sample_of("", (), criterion=criterion)
    steps = json.loads(rendered(asked, JudgeResult()).texts[0])["steps"]
    assert len(steps) == 3
    assert all(isinstance(step, str) for step in steps)


def strict_asked(fields, *, names="Input and Actual Output"):
    text = (
        "Given the evaluation steps, return a JSON with two keys: 1) a `score` key that is STRICTLY EITHER 1 (follows "
        "the criteria 100% outlined in the evaluation steps), OR 0 (does not follow the criteria), and 2) a `reason` "
        f"key. Please mention specific information from {names} in your reason, but be very concise "
        f"with it!\n\n\n\nEvaluation Steps:\n1. Look.\n\n{fields} \n\n\n\n**\n"
        'IMPORTANT: Please make sure to only return in JSON format, with the "score" and "reason" key. No words or '
        'explanation is needed.\n\nExample JSON:\n{\n  "score": 0\n}\n**\n\nJSON:'
    )
    return ChatRequest(messages=(Message(role="user", text=text),))


def test_a_field_that_starts_the_first_one_again_leaves_doubt():
    [(_, case)] = recognised(strict_asked("Input:\nq \n\nActual Output:\na\n\nInput:\nb"))
    assert (case.sample.question, case.sample.answers) == ("q", ("a\n\nInput:\nb",))
    assert case.sample.metadata["criterion"] == "1. Look."
    assert case.doubt == "a text holds the line that starts the first field"


def test_the_strict_form_needs_its_steps_and_fields_and_may_end_in_blank_lines():
    [message] = strict_asked("Input:\nq \n\nActual Output:\na").messages
    [(_, case)] = recognised(ChatRequest(messages=(Message(role="user", text=message.text + " \n"),)))
    assert (case.dialect, case.doubt) == ("deepeval-geval-strict", "")
    for part in ("\nEvaluation Steps:\n", "\n\nInput:\n", "\n\nActual Output:\n"):
        changed = message.text.replace(part, "\n\nPart:\n")
        assert recognised(ChatRequest(messages=(Message(role="user", text=changed),))) == []


@given(question=TEXTS, answer=TEXTS, correct=st.floats(0, 1))
def test_the_strict_form_wants_one_or_zero(question, answer, correct):
    asked = strict_asked(f"Input:\n{question} \n\nActual Output:\n{answer}")
    [(dialect, case)] = recognised(asked)
    assert (dialect.name, case.kind, case.sample.metadata["criterion"]) == (
        "deepeval-geval-strict",
        "label",
        "1. Look.",
    )
    assert case.doubt or (case.sample.question, case.sample.answers) == (question, (answer,))
    grade, _ = clients_verdict(as_choice(dialect.render(case, asked, JudgeResult(correct=correct))))
    assert grade * 10 == (correct >= 0.5)
