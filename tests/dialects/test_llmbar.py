"""LLMBar: what its parsers make of captured replies, and of ours."""

import re

import pytest

from judgelm.dialects.contract import ChatRequest, JudgeResult, JudgeTask, Message, sample_of
from tests.support import captures
from tests.support.captures import replies, requests

CHOICE, RATING, PREPARATION = captures.dialects("llmbar-choice", "llmbar-rating", "llmbar-preparation")
REASON = 'Output (b) is better, says [it].\nOutput (b) is better. "Therefore, Output (b) is better."'
PAIRS = [
    (JudgeResult(winner=1, scores=(8.0, 6.0), first_better=0.9, reason=REASON), "1"),
    (JudgeResult(winner=2, scores=(6.0, 8.0), first_better=0.1, reason=REASON), "2"),
    (JudgeResult(winner="tie", scores=(7.0, 7.0), first_better=0.6), "1"),
    (JudgeResult(winner="tie", scores=(7.0, 7.0), first_better=0.4), "2"),
]
GRADES = [(1.0, 0), (10.0, 9), (5.5, 4), (6.5, 6), (8.2, 7)]  # (score - 1) / 9 * 9; 4.5 and 5.5 to the even one


def asking(**more):
    return ChatRequest(messages=(Message(role="user", text=""),), **more)


def parsed_choice(text):
    """An output's name at the start of a line; (a) is looked for first."""
    for name, winner in (("a", "1"), ("b", "2")):
        if re.search(rf"(?m)^ *Output \({name}\)", text):
            return winner
    return None


def parsed_claim(text):
    """ "Output (a) is better" with one more character behind it."""
    for name, winner in (("a", "1"), ("b", "2")):
        if re.search(rf"Output \({name}\) is better.", text):
            return winner
    return None


def rated_alike(first, second):
    """Winners without and with the swap of two outputs rated by two replies."""
    try:
        ratings = int(first), int(second)
    except ValueError:
        return "1", "2"
    return ("1", "1") if ratings[0] > ratings[1] else ("2", "2") if ratings[0] < ratings[1] else ("2", "1")


@pytest.mark.parametrize(("folder", "parser"), [("llmbar__Vanilla", parsed_choice), ("llmbar__CoT", parsed_claim)])
def test_the_parsers_of_choices_are_understood(shared_data, folder, parser):
    turned = {"1": "2", "2": "1", None: None}  # the same reply after the swap speaks for the other output
    for reply, parsed in replies(shared_data, folder):
        found = parser(reply["content"])
        assert (found, turned[found]) == (parsed["swap = False"], parsed["swap = True"]), reply


def test_the_parser_of_ratings_is_understood(shared_data):
    for reply, parsed in replies(shared_data, "llmbar__Rating"):
        assert rated_alike(reply["content"], reply["content"]) == (parsed["swap = False"], parsed["swap = True"])


@pytest.mark.parametrize(("finding", "winner"), PAIRS)
def test_a_choice_is_the_bare_name_or_ends_in_the_claim(finding, winner):
    def rendered(explanation):
        case = JudgeTask(
            dialect="llmbar-choice", kind="pair", sample=sample_of("q", ("a", "b")), facts={"explanation": explanation}
        )
        return CHOICE.render(case, asking(max_tokens=300), finding).texts[0]

    assert rendered(False) == {"1": "Output (a)", "2": "Output (b)"}[winner]
    assert parsed_choice(rendered(False)) == parsed_claim(rendered(True)) == winner
    assert rendered(True).count("Output (") == 1
    assert len(rendered(True)) <= 300


def test_which_strategy_wants_an_explanation_is_seen(shared_data):
    for folder, wanted in [
        ("llmbar__Vanilla_1shot", {False}),
        ("llmbar__CoT", {True}),
        ("llmbar__Swap", {True, False}),
    ]:
        found = {CHOICE.recognise(asked).facts["explanation"] for _, asked in requests(shared_data, folder)}
        assert found == wanted


def test_an_instruction_that_quotes_the_prompts_headings_stays_whole(refilled):
    question = "q\n\n# Instruction:\nr"
    case = CHOICE.recognise(refilled("llmbar__Vanilla", question=question, answers=["a", "b"]))
    assert (case.sample.question, case.sample.answers) == (question, ("a", "b"))


def test_an_instruction_is_quoted_whole_where_questions_about_it_are_wanted(shared_data):
    before = next(asked for item, asked in requests(shared_data, "llmbar__Metrics") if item.get("aux"))
    system, user = before.messages
    head, middle, rules = user.text.partition("# Instruction:\n")
    plain, _, _ = rules.partition("\n\n# Requirements for Your Output:\n")
    question = (
        "q\n\n# Instruction:\nr\n\n# Requirements for Your Output:\n"
        "(1) The questions should **specifically** target the given task."
    )
    text = head + middle + rules.replace(plain, question, 1)
    prepared = PREPARATION.recognise(ChatRequest(messages=(system, Message(role="user", text=text))))
    assert prepared.sample.question == question


def test_the_instructions_heading_opens_a_paragraph(refilled):
    system, user = refilled("llmbar__Vanilla", answers=["a", "b"]).messages
    head, heading, rest = user.text.partition("# Instruction:\n")
    for start in (f"{head}Now: {heading}", f"{head}# Task:\n"):
        changed = Message(role="user", text=start + rest)
        assert CHOICE.recognise(ChatRequest(messages=(system, changed))) is None


@pytest.mark.parametrize(("score", "rating"), GRADES)
def test_a_rating_is_a_whole_number_alone(score, rating):
    case = JudgeTask(dialect="llmbar-rating", kind="grade", sample=sample_of("q", ("a",)), scale=(0, 9))
    [text] = RATING.render(case, asking(), JudgeResult(scores=(score,))).texts
    assert (text, int(text)) == (str(rating), rating)


def test_our_own_reference_is_no_reference(shared_data):
    prepared = [(item["id"], asked) for item, asked in requests(shared_data, "llmbar__Reference") if item.get("aux")]
    judging = [(item["id"], asked) for item, asked in requests(shared_data, "llmbar__Reference") if "stage" in item]
    for (_, before), (_, asked) in zip(prepared, judging[::2], strict=True):
        [reply] = PREPARATION.render(PREPARATION.recognise(before), before, JudgeResult()).texts
        system, user = asked.messages
        filled = user.text.replace("strong AI assistant:\nRed, yellow, blue.", f"strong AI assistant:\n{reply}")
        assert filled != user.text
        case = CHOICE.recognise(ChatRequest(messages=(system, Message(role="user", text=filled))))
        assert (case.sample.question, case.sample.reference) == (
            CHOICE.recognise(asked).sample.question,
            None,
        )


@pytest.mark.parametrize("folder", ["llmbar__Metrics", "llmbar__Metrics_Reference"])
def test_questions_of_another_judge_are_the_criterion_and_our_own_are_none(shared_data, folder):
    found = list(requests(shared_data, folder))
    [before] = [asked for item, asked in found if item["id"] == "plain" and item.get("aux")][:1]
    [item, asked] = next(one for one in found if one[0]["id"] == "plain" and not one[0].get("aux"))
    assert CHOICE.recognise(asked).sample.metadata == {"criterion": item["aux_replies"][0]}
    prepared = PREPARATION.recognise(before)
    assert (prepared.sample.question, prepared.sample.answers) == (item["question"], ())
    own = PREPARATION.render(prepared, before, JudgeResult()).texts[0]
    system, user = asked.messages
    filled = Message(role="user", text=user.text.replace(item["aux_replies"][0], own))
    assert filled != user
    case = CHOICE.recognise(ChatRequest(messages=(system, filled)))
    assert (case.sample.answers, case.sample.metadata) == (tuple(item["answers"]), {})


def test_an_ordinary_request_of_the_concise_assistant_is_not_ours():
    messages = (
        Message(role="system", text="You are a helpful assistant that responds to the user in a concise way."),
        Message(role="user", text="Hello"),
    )
    assert PREPARATION.recognise(ChatRequest(messages=messages)) is None
    assert PREPARATION.recognise(ChatRequest(messages=messages, max_tokens=384)) is not None
