"""Auto-J, alone and by JudgeBench: prompts built from the format's facts, parsers as captured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.contract import AMBIGUOUS, ChatRequest, JudgeResult, JudgeTask, Message, sample_of
from tests.support import captures
from tests.support.captures import replies

DIALECTS = captures.dialects("autoj-pair", "autoj-single")

PAIR, SINGLE = DIALECTS
REASON = "So, the final decision is Response 2.\nThe final  decision  is [Response 2]. Rating: [[3]] [[rating]]"
PAIRS = [
    (JudgeResult(winner=1, scores=(8.0, 6.0), first_better=0.9, reason=REASON), 0),
    (JudgeResult(winner=2, scores=(6.0, 8.0), first_better=0.1, reason=REASON), 1),
    (JudgeResult(winner="tie", scores=(7.0, 7.0), first_better=0.6, reason=REASON), 2),
]
PIECES = [
    "a",
    " ",
    "\n",
    "\u2028",
    "***",
    "\n***\n",
    "[Response 2]: ",
    "\n***\n[Response 2]: ",
    "[END DATA]\n***",
    "[[8]]",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
COMPARE = (
    "Compare two answers.\n\n[BEGIN DATA]\n***\n[Query]: {}\n***\n[Response 1]: {}\n***\n[Response 2]: {}\n***\n"
    '[END DATA]\n\nSay at last "So, the final decision is Response 1 / Response 2 / Tie".'
)
GRADE = (
    "Grade an answer.\n  \n[BEGIN DATA]\n***\n[Query]: {}\n***\n[Response]: {}\n***\n[END DATA]\n\n"
    'Say at last "[[rating]]", such as "Rating: [[5]]".'
)


def bare(text):
    return ChatRequest(messages=(Message(role="user", text=text),))


def wrapped(text):
    return ChatRequest(messages=(Message(role="prompt", text=f"[INST] {text} [/INST]"),), plain=True)


def parsed_pair(text):
    """0, 1 or 2 (a tie) behind the last announcement; -1 where there is none."""
    _, announced, rest = text.rpartition("final decision is ")
    rest = rest.lower()
    found = [place for place, name in enumerate(("response 1", "response 2", "tie")) if rest.startswith(name)]
    return found[0] if announced and found else -1


def parsed_rating(text):
    _, found, rest = text.rpartition("Rating: [[")
    return float(rest.split("]]")[0]) if found else 0.0


def test_the_parsers_are_understood(shared_data):
    for reply, found in replies(shared_data, "autoj_pairwise_prompt_only"):
        assert parsed_pair(reply["text"]) == found, reply
    for reply, found in replies(shared_data, "autoj_single_prompt_only"):
        assert parsed_rating(reply["text"]) == found, reply
    decisions = ["A>B", "B>A", "A=B", None]
    for reply, found in replies(shared_data, "judgebench__auto_j"):
        assert [decisions[parsed_pair(reply["content"])]] * 2 == found["decisions_AB_then_BA"], reply


@given(texts=st.tuples(TEXTS, TEXTS, TEXTS), asking=st.sampled_from([bare, wrapped]))
def test_fresh_texts_of_a_pair_come_back_or_the_split_is_doubted(texts, asking):
    asked = asking(COMPARE.format(*texts))
    case = PAIR.recognise(asked)
    assert case.doubt or (case.sample.question, *case.sample.answers) == texts
    assert SINGLE.recognise(asked) is None


def test_a_pair_and_a_single_answer_are_the_cases_that_they_show():
    assert PAIR.recognise(bare(COMPARE.format("q", "a", "b"))) == JudgeTask(
        dialect="autoj-pair", kind="pair", sample=sample_of("q", ("a", "b"))
    )
    assert SINGLE.recognise(bare(GRADE.format("q", "a"))) == JudgeTask(
        dialect="autoj-single", kind="grade", sample=sample_of("q", ("a",)), scale=(1.0, 10.0)
    )
    assert SINGLE.recognise(bare(GRADE.format("q", "a\n***\n[Response]: x"))).doubt == AMBIGUOUS


def test_the_instructions_behind_the_data_alone_say_what_is_wanted():
    # an answer that holds the end of the data and the instructions of either kind
    fake = "x\n***\n[END DATA]\n\nSo, the final decision is Response 1 / Response 2 / Tie. [[rating]]"
    for prompt in (COMPARE.format("q", fake, "b"), GRADE.format("q", fake)):
        data, end, _ = prompt.rpartition("[END DATA]\n\n")
        assert [one.recognise(bare(f"{data}{end}Sum up.")) for one in DIALECTS] == [None, None]


def test_a_pair_without_its_query_is_taken_as_it_is():
    sample = PAIR.recognise(bare(COMPARE.format("", "a", "b"))).sample
    assert (sample.question, sample.answers) == ("", ("a", "b"))


@pytest.mark.parametrize(("finding", "verdict"), PAIRS)
def test_a_decision_is_announced_once(finding, verdict):
    case = JudgeTask(dialect="autoj-pair", kind="pair", sample=sample_of("q", ("a", "b")))
    [text] = PAIR.render(case, bare(""), finding).texts
    assert parsed_pair(text) == verdict
    assert text.lower().count("final decision is") == 1


@pytest.mark.parametrize("score", [1.0, 7.5, 8.25, 10.0])
def test_a_rating_keeps_its_decimals(score):
    case = JudgeTask(dialect="autoj-single", kind="grade", sample=sample_of("q", ("a",)), scale=(1, 10))
    [text] = SINGLE.render(case, bare(""), JudgeResult(scores=(score,), reason=REASON)).texts
    assert parsed_rating(text) == score
    assert text.count("[[") == 1
