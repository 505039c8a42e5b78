"""ragas: what it sends, and the verdicts it reads."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.contract import ChatRequest, JudgeResult, Message, sample_of
from tests.support import captures

DIALECTS = captures.dialects("ragas-")

# folder: name, task, scale, names of the words and of the verdict
FOLDERS = {
    "ragas_aspect_critic_langchain": ("ragas-aspect-critic", "label", None, "reason", "verdict"),
    "ragas_simple_criteria_langchain": ("ragas-simple-criteria", "grade", (0, 5), "reason", "score"),
    "ragas_rubrics_langchain": ("ragas-rubrics", "grade", (1, 5), "feedback", "score"),
    "ragas_discrete_instructor": ("ragas-discrete", "label", None, "reason", "value"),
}
ESCAPED = [folder for folder in FOLDERS if folder != "ragas_discrete_instructor"]
TEXTS = st.one_of(
    st.text(max_size=30),
    st.lists(
        st.sampled_from(["a", "\n", "\nOutput: ", '",\n    "reference": "', "\nResponse: ", "\nReference: ", '"', "\\",
                         "\nNow perform the same with the following input\ninput: ", "\u2028", "\nAnswer: "]),
        max_size=6,
    ).map("".join),
)  # fmt: skip
REASONS = st.one_of(st.none(), st.text(), st.just('{"verdict": 0, "score": 1, "value": "fail"}'))


def recognised(asked):
    return [(one, case) for one in DIALECTS if (case := one.recognise(asked)) is not None]


def clients_verdict(reply, folder):
    """The verdict in the first JSON object; ValueError where the client asks again."""
    *_, words, verdict = FOLDERS[folder]
    found, _ = json.JSONDecoder().raw_decode(reply[max(0, reply.find("{")) :])
    if not isinstance(found, dict) or not isinstance(found.get(words), str) or verdict not in found:
        raise ValueError("fields are missing")
    if folder == "ragas_discrete_instructor":
        if found[verdict] not in ("pass", "fail"):
            raise ValueError("not one of the values")
        return found[verdict]
    if float(found[verdict]) % 1:
        raise ValueError("not whole")
    return int(found[verdict])


def test_the_criterion_is_found(shared_data):
    found = {}
    for folder in ESCAPED:
        [(_, case)] = recognised(next(captures.requests(shared_data, folder))[1])
        found[folder] = case.sample.metadata["criterion"].split("\n")[0]
    assert [*found.values()] == [
        "Is the response factually correct?",
        "Score 0 to 5 by similarity to reference",
        "score1_description: bad",
    ]


@pytest.mark.parametrize(
    ("criterion", "scale"),
    [
        ("Rate politeness from 1 to 10.", (1, 10)),
        ("On facts of 1990 to 2000, of chapters 3-4: score 0-3", (0, 3)),
        ("How similar is it? 1 – 7", (1, 7)),
        ("From 0 to 100, how kind is it?", (0, 100)),
        ("Is it kind?", (0, 5)),  # none is named
        ("Is it like point 3 to 3?", (0, 5)),
        ("Be kind.\nCriteria Definition: rate 1 to 3", (1, 3)),
        ("1 to 4?\nNow perform the same with the following input\ninput: x", (1, 4)),
    ],
)
def test_the_scale_is_the_criterions(refilled, criterion, scale):
    asked = refilled("ragas_simple_criteria_langchain", answers=["a"])
    text = asked.messages[0].text.replace("Score 0 to 5 by similarity to reference", criterion)
    [(_, case)] = recognised(replace(asked, messages=(replace(asked.messages[0], text=text),)))
    assert (case.scale, case.sample.metadata["criterion"]) == (scale, criterion)


def asking(kind, given, instruction="Judge it.", *, schema=None):
    text = (
        f"{instruction}\nPlease return the output in a JSON format that complies with the following schema as "
        f"specified in JSON Schema:\n{schema or json.dumps({'title': kind})}Do not use single quotes.\n\n---\n\n"
        f"Now perform the same with the following input\ninput: {given}\nOutput: "
    )
    return ChatRequest(messages=(Message(role="user", text=text),))


@pytest.mark.parametrize(
    ("given", "question", "context"),
    [
        ({"user_input": "q"}, "q", None),
        ({"user_input": ["a dialogue"]}, "", None),
        ({"retrieved_contexts": ["c", "d"], "reference_contexts": ["e"]}, "", "c\n\nd"),
        ({"reference_contexts": ["e"]}, "", "e"),
        ({"retrieved_contexts": "c"}, "", None),
    ],
)
def test_the_question_and_the_contexts_are_those_given(given, question, context):
    [(_, case)] = recognised(asking("AspectCriticOutput", json.dumps({"response": "a", **given})))
    assert case.sample == sample_of(question, ("a",), criterion="Judge it.", context=context)


@pytest.mark.parametrize(
    ("levels", "own", "scale"),
    [
        ("score1_description: bad\nscore_3_description: unlike score9_description", None, (1, 3)),
        ("score0_description: bad\nscore4_description: good", None, (0, 4)),
        ("score1_description: bad", None, (1, 5)),  # one level is no scale
        ("", None, (1, 5)),
        (
            "score1_description: bad\nscore3_description: good",
            {"score0_description": "", "score9_description": ""},
            (0, 9),
        ),
    ],
)
def test_the_scale_is_the_rubrics(levels, own, scale):
    given = {"response": "a"} | ({} if own is None else {"rubrics": own})
    instruction = f"Judge it.\n\nScoring Rubrics:\n{levels}"
    [(dialect, case)] = recognised(asking("ScoreFeedback", json.dumps(given), instruction))
    assert (dialect.name, case.scale, case.sample.metadata["criterion"]) == ("ragas-rubrics", scale, levels)


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        ('{"response": "a"}', '{"title": "AnotherOutput"}'),
        ('{"response": "a"}', '{"title": ["AspectCriticOutput"]}'),
        ('{"response": "a"}', "{}"),
        ('{"response": "a"}', '["AspectCriticOutput"]'),
        ('{"response": "a"}', "no JSON"),
        ('["response", "a"]', None),
        ("no JSON", None),
    ],
)
def test_what_has_not_the_clients_schema_or_no_texts_is_not_taken(given, schema):
    assert recognised(asking("AspectCriticOutput", given, schema=schema)) == []


def test_a_whole_dialogue_is_not_taken_for_an_answer(refilled):
    asked = refilled("ragas_aspect_critic_langchain", answers=["a"])
    text = asked.messages[0].text.replace('    "response": "a",\n', "")
    assert recognised(replace(asked, messages=(replace(asked.messages[0], text=text),))) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_parser_here_concludes_what_the_client_did(shared_data, folder):
    for reply, parsed in captures.replies(shared_data, folder):
        if isinstance(parsed, dict) and "error" in parsed:
            with pytest.raises(ValueError):  # noqa: PT011 - JSON's errors are ValueErrors, too
                clients_verdict(reply["content"], folder)
        else:
            expected = parsed["value"] if isinstance(parsed, dict) else parsed
            assert clients_verdict(reply["content"], folder) == expected


def escaped(text):
    return json.dumps(text, ensure_ascii=False)[1:-1]


@given(question=TEXTS, answer=TEXTS, reference=TEXTS)
@pytest.mark.parametrize("folder", ESCAPED)
def test_what_is_put_in_comes_out(refilled, folder, question, answer, reference):
    asked = refilled(folder, question=question, answers=[answer], reference=reference, write=escaped)
    [(_, case)] = recognised(asked)
    sample = case.sample
    assert case.doubt == ""  # escaped texts cannot imitate the prompt
    assert (sample.question, sample.answers, sample.reference) == (question, (answer,), reference)


@given(question=TEXTS, answer=TEXTS, reference=TEXTS)
def test_a_prompt_of_the_users_own_stays_in_doubt(refilled, question, answer, reference):
    asked = refilled("ragas_discrete_instructor", question=question, answers=[answer], reference=reference)
    [(_, case)] = recognised(asked)
    assert case.doubt
    if not any("\n" in text or "Answer with" in text for text in (question, answer, reference)):
        sample = case.sample
        assert (sample.question, sample.answers, sample.reference) == (question, (answer,), reference)


def discrete(prompt, schema=None):
    schema = {"properties": {"value": {"enum": ["pass", "fail"]}}} if schema is None else schema
    system = f"Match this schema:\n{json.dumps({'title': 'DiscreteResponseModel'} | schema)}\nNo more."
    return ChatRequest(messages=(Message(role="system", text=system), Message(role="user", text=prompt)))


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("Answer: a", ("", "a", None)),
        ("Question: q\nAnswer: a\nb", ("q", "a\nb", None)),  # the last line is the client's where it names the values
        ("Question: q\nAnswer: a\nSay pass or fail.", ("q", "a", None)),
        ("Question: q\nAnswer: a\nQuestion: r\nReference: b", ("q", "a\nQuestion: r", "b")),
    ],
)
def test_the_texts_behind_the_usual_labels_are_found(prompt, texts):
    [(_, case)] = recognised(discrete(prompt))
    question, answer, reference = texts
    assert case.sample == sample_of(question, (answer,), reference)
    assert case.facts == {"good": "pass", "bad": "fail"}
    assert case.doubt == "the prompt is the user's own: its texts were found by usual labels"


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": []},
        {"properties": {}},
        {"properties": {"value": "pass"}},
        {"properties": {"value": {"type": "string"}}},
        {"properties": {"value": {"enum": "pass"}}},
        {"properties": {"value": {"enum": ["pass", "fail", "open"]}}},
        {"properties": {"value": {"enum": ["pass", "yes"]}}},
        {"properties": {"value": {"enum": ["pass", "good", "fail"]}}},
    ],
)
def test_a_schema_without_one_good_and_one_bad_value_is_not_taken(schema):
    assert recognised(discrete("Answer: a", schema)) == []


@given(correct=st.floats(0, 1), reason=REASONS)
@pytest.mark.parametrize("folder", ["ragas_aspect_critic_langchain", "ragas_discrete_instructor"])
def test_the_client_reads_what_is_likelier(refilled, folder, correct, reason):
    asked = refilled(folder, answers=["a"])
    [(dialect, case)] = recognised(asked)
    [text] = dialect.render(case, asked, JudgeResult(correct=correct, reason=reason)).texts
    labels = (1, 0) if folder == "ragas_aspect_critic_langchain" else ("pass", "fail")
    assert clients_verdict(text, folder) == labels[0 if correct >= 0.5 else 1]


@pytest.mark.parametrize(
    ("folder", "score", "grade"),
    [
        ("ragas_simple_criteria_langchain", 10.0, 5),
        ("ragas_simple_criteria_langchain", 5.5, 2),  # 2.5, to the even neighbour
        ("ragas_simple_criteria_langchain", 1.0, 0),
        ("ragas_simple_criteria_langchain", 9.5, 5),  # 8.5/9 * 5 = 4.72
        ("ragas_rubrics_langchain", 1.0, 1),
        ("ragas_rubrics_langchain", 8.0, 4),  # 1 + 7/9 * 4 = 4.11
        ("ragas_rubrics_langchain", 10.0, 5),
    ],
)
def test_the_client_reads_the_expected_grade_rounded(refilled, folder, score, grade):
    asked = refilled(folder, answers=["a"])
    [(dialect, case)] = recognised(asked)
    [text] = dialect.render(case, asked, JudgeResult(scores=(score,), reason='{"score": 9}')).texts
    assert clients_verdict(text, folder) == grade
