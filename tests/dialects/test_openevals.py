"""openevals: what it sends, and the scores it reads."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.contract import AMBIGUOUS, ChatRequest, JudgeResult, Message
from tests.support import captures

[OPENEVALS] = captures.dialects("openevals")
# folder: task, scale
FOLDERS = {
    "openevals_bool_langchain": ("label", None),
    "openevals_bool_openaiclient": ("label", None),
    "openevals_noreason_langchain": ("label", None),
    "openevals_continuous_langchain": ("grade", (0, 1)),
    "openevals_choices_langchain": ("grade", (0, 1)),
}
TEXTS = st.one_of(
    st.text(max_size=30),
    st.lists(
        st.sampled_from(["a", "\n", "\n</output>", "\n</output>\n\n", "<input>\n", "\n</input>\n\n<output>\n", "\u2028",
                         "Use this:\n\n<reference_outputs>\n", "\n</reference_outputs>", "</output>", " "]),
        max_size=6,
    ).map("".join),
)  # fmt: skip


def clients_score(message, folder):
    """The score that the client stores; an error of Python where it stops."""
    if folder == "openevals_bool_langchain":
        found = json.loads(message["tool_calls"][0]["function"]["arguments"])
    else:
        found = json.loads(message["content"])
    if folder != "openevals_noreason_langchain":
        assert isinstance(found["reasoning"], str)
    return found["score"]


def message_of(reply):
    calls = [{"function": {"name": reply.tool, "arguments": reply.arguments}}] if reply.tool else None
    return {"content": reply.texts[0] if reply.texts else None, "tool_calls": calls}


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_parser_here_concludes_what_the_client_did(shared_data, folder):
    for reply, parsed in captures.replies(shared_data, folder):
        message = reply["choices"][0]["message"] if "choices" in reply else reply
        if "error" in parsed:
            with pytest.raises((KeyError, TypeError, json.JSONDecodeError)):
                clients_score(message, folder)
        else:
            assert clients_score(message, folder) == parsed["score"]


@given(question=TEXTS, answer=TEXTS, reference=TEXTS)
@pytest.mark.parametrize("folder", ["openevals_bool_langchain", "openevals_choices_langchain"])
def test_what_is_put_in_comes_out_or_is_doubted(refilled, folder, question, answer, reference):
    reference = None if folder == "openevals_choices_langchain" else reference
    case = OPENEVALS.recognise(refilled(folder, question=question, answers=[answer], reference=reference))
    sample = case.sample
    assert case.doubt or (sample.question, sample.answers, sample.reference) == (question, (answer,), reference)


@given(correct=st.floats(0, 1), reason=st.one_of(st.none(), st.text()))
@pytest.mark.parametrize("folder", [one for one in FOLDERS if FOLDERS[one][0] == "label"])
def test_the_client_reads_true_or_false(refilled, folder, correct, reason):
    asked = refilled(folder, answers=["a"])
    reply = OPENEVALS.render(OPENEVALS.recognise(asked), asked, JudgeResult(correct=correct, reason=reason))
    assert clients_score(message_of(reply), folder) is (correct >= 0.5)
    if folder == "openevals_noreason_langchain":
        assert json.loads(reply.texts[0]) == {"score": correct >= 0.5}  # as strict as the schema


@given(score=st.floats(1, 10))
def test_the_client_reads_a_number_or_the_nearest_choice(refilled, score):
    for folder, step in (("openevals_continuous_langchain", 0.0001), ("openevals_choices_langchain", 0.5)):
        asked = refilled(folder, answers=["a"])
        reply = OPENEVALS.render(OPENEVALS.recognise(asked), asked, JudgeResult(scores=(score,)))
        found = clients_score(message_of(reply), folder)
        assert abs(found - (score - 1) / 9) <= step / 2 + 1e-9
        assert json.loads(reply.texts[0])["reasoning"].endswith(f"Thus, the score should be: {json.dumps(found)}.")


def test_prompts_and_tags_are_the_users(refilled):
    asked = refilled("openevals_bool_openaiclient", answers=["a"])
    text = "Is it rude?\n\n<example>\n<inputs>\nq\n</inputs>\n\n<outputs>\na\n</outputs>\n</example>\n"
    own = replace(asked, messages=(Message(role="system", text="Be brief."), Message(role="user", text=text)))
    case = OPENEVALS.recognise(own)
    assert (case.sample.question, case.sample.answers) == ("q", ("a",))
    assert case.sample.metadata["criterion"].startswith("Is it rude?")


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {"properties": {"score": {"type": "boolean", "description": "whether it is good"}}},
        {"properties": {"score": {"type": "string", "description": "criteria in the prompt are met"}}},
        {"properties": {"city": {"type": "string"}}},
        {"type": "array"},
        *(
            {"properties": {"score": {"type": "number", "enum": enum, "description": "criteria in the prompt are met"}}}
            for enum in (["low", "high"], [False, True], "01")
        ),
    ],
)
def test_another_schema_is_not_the_clients(refilled, schema):
    asked = refilled("openevals_bool_openaiclient", answers=["a"])
    assert OPENEVALS.recognise(ChatRequest(messages=asked.messages, schema=schema)) is None


def test_a_prompt_without_the_clients_tags_or_its_function_is_not_taken(refilled):
    asked = refilled("openevals_bool_langchain", answers=["a"])
    assert OPENEVALS.recognise(asked) is not None
    [message] = asked.messages
    untagged = replace(message, text=message.text.replace("<output>", "<o>"))
    assert OPENEVALS.recognise(replace(asked, messages=(untagged,))) is None
    assert OPENEVALS.recognise(replace(asked, tools=())) is None


@pytest.mark.parametrize(
    ("question", "answer", "reference"),
    [("q<input>\nr", "a", "r"), ("q<input>\nr", "a", None), ("q", "a\n</output>\nb", None)],
)
def test_texts_with_tags_of_their_own_leave_doubt(refilled, question, answer, reference):
    folder = "openevals_choices_langchain" if reference is None else "openevals_bool_openaiclient"
    case = OPENEVALS.recognise(refilled(folder, question=question, answers=[answer], reference=reference))
    assert case.doubt == AMBIGUOUS


def test_numbers_have_four_decimals_and_choices_their_own_scale(refilled):
    asked = refilled("openevals_continuous_langchain", answers=["a"])
    [text] = OPENEVALS.render(OPENEVALS.recognise(asked), asked, JudgeResult(scores=(2.0,), reason="Très juste.")).texts
    # (2 - 1) / 9
    assert text == (
        '{"reasoning": "Score: 2 out of 10. Très juste. Thus, the score should be: 0.1111.", "score": 0.1111}'
    )
    score = {"type": "number", "enum": [5, 1, 3], "description": "criteria in the prompt are met"}
    own = replace(asked, schema={"properties": {"score": score}})
    case = OPENEVALS.recognise(own)
    assert case.scale == (1, 5)
    # 7.5 of 1 to 10 is 3.89 of 1 to 5
    assert OPENEVALS.render(case, own, JudgeResult(scores=(7.5,))).texts == ('{"score": 3.0}',)
