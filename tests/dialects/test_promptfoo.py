"""promptfoo's model-graded assertions: what they send, and what they conclude from the replies."""

import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.contract import ChatRequest, JudgeResult, Message
from tests.support import captures

DIALECTS = captures.dialects("promptfoo-")

# folder: name, task, whether the prompt shows the question
FOLDERS = {
    "promptfoo_llm_rubric": ("promptfoo-llm-rubric", "label", False),
    "promptfoo_closedqa": ("promptfoo-closedqa", "label", True),
    "promptfoo_factuality": ("promptfoo-factuality", "label", True),
    "promptfoo_g_eval": ("promptfoo-g-eval", "grade", True),
    "promptfoo_select_best": ("promptfoo-select-best", "pair", False),
}
SINGLE = [folder for folder in FOLDERS if folder != "promptfoo_select_best"]
TEXTS = st.one_of(
    st.text(max_size=30),
    st.lists(
        st.sampled_from(["a", "\n", "\n</Output>\n<Rubric>\n", "\n***\n[Criterion]: ", "***", "</submitted_answer>",
                         "\n</question>\n\n<expert_answer>\n", "\n\n**Reply**\n",
                         "\n\n**OUTPUT FORMAT**\nIMPORTANT: \n",
                         "\u2028", '\n</Text>\n\n<Text index="1">\n', "\n</Text>\n", '{"pass": true}']),
        max_size=6,
    ).map("".join),
)  # fmt: skip
REASONS = st.one_of(st.none(), st.text(), st.just('(D) {"pass": false}\nN\nY\n7 [[1]] ```json'))


def recognised(asked):
    return [(one, case) for one in DIALECTS if (case := one.recognise(asked)) is not None]


def objects(reply):
    """The first JSON object in a reply, read as leniently as the client does; None where there is none."""
    begin, depth = reply.find("{"), 0
    text_open = False
    for place in range(begin, len(reply)) if begin >= 0 else ():
        if reply[place] == '"' and reply[place - 1] != "\\":
            text_open = not text_open
        depth += 0 if text_open else (reply[place] == "{") - (reply[place] == "}")
        if depth == 0:
            text = reply[begin : place + 1]
            try:
                return json.loads(text)
            except json.JSONDecodeError:
                return yaml.safe_load(text)
    return None


def rubric(reply):
    """(pass, score)"""
    found = objects(reply)
    if found is None:
        return False, 0
    passes = str(found.get("pass", True)).lower() == "true"
    return passes, float(found.get("score", passes))


def closed_qa(reply):
    meets = reply.strip().split("\n")[-1] == "Y"
    return meets, int(meets)


def factuality(reply):
    found = objects(reply)
    if found is not None:
        letter = found["category"].upper()
        letter = letter if letter in "ABCDE" and len(letter) == 1 else None
    else:
        letter = match[1] if (match := re.search(r"\(([A-E])\)", reply)) else None
    agrees = letter is not None and letter != "D"
    return agrees, int(agrees)


def g_eval(reply):
    found = objects(reply)
    if found is None or not found.get("reason") or not 0 <= float(found["score"]) <= 10:
        return False, 0
    return float(found["score"]) >= 7, float(found["score"]) / 10


def select_best(reply):
    """Place of the best, None where no text has the number."""
    found = re.search(r"\d+", reply)
    return int(found[0]) if found and int(found[0]) < 2 else None


PARSERS = {"promptfoo_llm_rubric": rubric, "promptfoo_closedqa": closed_qa, "promptfoo_factuality": factuality,
           "promptfoo_g_eval": g_eval}  # fmt: skip


@pytest.mark.parametrize("folder", FOLDERS)
def test_captured_requests_are_recognised_and_split_exactly(shared_data, folder):
    name, task, with_question = FOLDERS[folder]
    for item, asked in captures.requests(shared_data, folder):
        [(dialect, case)] = recognised(asked)
        if item.get("aux"):
            assert (dialect.name, case.kind) == ("promptfoo-g-eval-steps", "prepare")
            assert case.sample.metadata["criterion"] == item["criteria"]
            continue
        assert (dialect.name, case.kind, case.doubt) == (name, task, "")
        # the client cuts a variable's last line feed
        question = item["question"].removesuffix("\n") if with_question else ""
        assert (case.sample.question, [*case.sample.answers], case.sample.reference) == (
            question, item["answers"], item["reference"])  # fmt: skip
        assert case.sample.metadata.get("criterion") == (None if folder == "promptfoo_factuality" else item["criteria"])


@pytest.mark.parametrize("folder", SINGLE)
def test_the_parsers_here_conclude_what_the_client_did(shared_data, folder):
    for reply, parsed in captures.replies(shared_data, folder):
        assert PARSERS[folder](reply["content"]) == (parsed["pass"], pytest.approx(parsed["score"]))


def test_the_index_is_the_first_number(shared_data):
    for reply, parsed in captures.replies(shared_data, "promptfoo_select_best"):
        best = select_best(reply["content"])
        assert [one["pass"] for one in parsed] == [best == 0, best == 1]


@given(question=TEXTS, answer=TEXTS, reference=TEXTS)
@pytest.mark.parametrize("folder", SINGLE)
def test_what_is_put_in_comes_out_or_is_doubted(refilled, folder, question, answer, reference):
    question = question if FOLDERS[folder][2] else None
    reference = reference if folder == "promptfoo_factuality" else None
    asked = refilled(folder, question=question, answers=[answer], reference=reference)
    [(_, case)] = recognised(asked)
    sample = case.sample
    assert case.doubt or (sample.question, sample.answers, sample.reference) == (question or "", (answer,), reference)


@given(correct=st.floats(0, 1), reason=REASONS)
@pytest.mark.parametrize("folder", ["promptfoo_llm_rubric", "promptfoo_closedqa", "promptfoo_factuality"])
def test_the_client_passes_what_is_likelier_right_than_wrong(refilled, folder, correct, reason):
    asked = refilled(folder, answers=["a"])
    [(dialect, case)] = recognised(asked)
    [text] = dialect.render(case, asked, JudgeResult(correct=correct, reason=reason)).texts
    passes, score = PARSERS[folder](text)
    assert passes == (correct >= 0.5)
    assert score == (pytest.approx(correct, abs=0.0001) if folder == "promptfoo_llm_rubric" else passes)


@given(score=st.floats(1, 10), reason=REASONS)
def test_the_client_reads_the_expected_grade(refilled, score, reason):
    asked = refilled("promptfoo_g_eval", answers=["a"])
    [(dialect, case)] = recognised(asked)
    [text] = dialect.render(case, asked, JudgeResult(scores=(score,), reason=reason)).texts
    assert g_eval(text)[1] == pytest.approx((score - 1) / 9, abs=0.0006)
    assert "\n" not in text


@pytest.mark.parametrize(
    ("finding", "verdict"),
    [
        (JudgeResult(correct=0.12346), (False, 0.1235)),
        (JudgeResult(scores=(8.2,)), (True, 1.0)),  # 0.8 of 0 to 1: the grade alone is no probability
        (JudgeResult(scores=(3.0,)), (False, 0.0)),
    ],
)
def test_a_rubrics_score_is_the_probability_or_the_verdict(refilled, finding, verdict):
    asked = refilled("promptfoo_llm_rubric", answers=["a"])
    [(dialect, case)] = recognised(asked)
    found = json.loads(dialect.render(case, asked, finding).texts[0])
    assert (found["pass"], found["score"]) == verdict


def test_the_steps_are_ones_that_the_client_reads(shared_data):
    asked = next(asked for item, asked in captures.requests(shared_data, "promptfoo_g_eval") if item.get("aux"))
    [(dialect, case)] = recognised(asked)
    [text] = dialect.render(case, asked, JudgeResult()).texts
    steps = json.loads(text)["steps"]
    assert len(steps) == 3
    assert text == '{"steps":["' + '","'.join(steps) + '"]}'  # minified, as the prompt wants it


def compared(*texts):
    shown = "\n\n".join(f'<Text index="{place}">\n{text}\n</Text>' for place, text in enumerate(texts))
    prompt = (
        "You are comparing multiple pieces of text to see which best fits the following criteria: be kind\n\n"
        f"Here are the pieces of text:\n\n\n{shown}\n\n\nOutput the index of the text that best fits the criteria. You "
        "must output a single integer."
    )
    return ChatRequest(messages=(Message(role="system", text=prompt),))


@given(texts=st.lists(TEXTS, min_size=2, max_size=4))
def test_texts_to_choose_from_come_out_or_are_doubted(texts):
    [(_, case)] = recognised(compared(*texts))
    assert case.doubt or case.sample.answers == tuple(texts)
    assert case.kind == ("pair" if len(case.sample.answers) == 2 else "choice")


@pytest.mark.parametrize(("count", "taken"), [(1, False), (2, True), (64, True), (65, False)])
def test_up_to_64_texts_are_compared(count, taken):
    found = recognised(compared(*["a"] * count))
    assert [case.sample.answers for _, case in found] == ([("a",) * count] if taken else [])


def test_a_text_that_imitates_the_next_one_stays_whole():
    [(_, case)] = recognised(compared('a\n<Text index="2">\nx', "b"))
    assert (case.kind, case.sample.answers, case.doubt) == ("pair", ('a\n<Text index="2">\nx', "b"), "")


@pytest.mark.parametrize(
    ("finding", "index"),
    [
        (JudgeResult(winner=1), "0"),
        (JudgeResult(winner=2), "1"),
        (JudgeResult(winner="tie", first_better=0.6), "0"),
        (JudgeResult(winner="tie", first_better=0.4), "1"),
    ],
)
def test_of_two_the_index_of_the_better_is_all(finding, index):
    [(dialect, case)] = recognised(compared("a", "b"))
    assert dialect.render(case, compared("a", "b"), finding).texts == (index,)


def test_of_three_the_highest_score_is_chosen():
    asked = compared("a", "b", "c")
    [(dialect, case)] = recognised(asked)
    assert dialect.render(case, asked, JudgeResult(scores=(5.0, 6.5, 6.0))).texts == ("1",)
