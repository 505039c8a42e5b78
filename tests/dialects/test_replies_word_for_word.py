"""Each dialect's reply to one finding, to the letter: verdict, words, how they are cut, and each of several replies."""

import pytest

from judgelm.dialects.catalog import DIALECTS
from judgelm.dialects.contract import ChatRequest, JudgeResult, JudgeTask, sample_of

BY_NAME = {dialect.name: dialect for dialect in DIALECTS}
# the finding's own words stand in the first of several replies
SAID = ("Scores: 8 and 6 out of 10. Très juste.", "Scores: 5 and 7 out of 10.")
GRADED = ("Score: 8.2 out of 10. Très juste.", "Score: 1 out of 10.")
REASONS = ("Très juste.", "Judged as a whole.")  # without digits
MOST_LIKELY = "Fulfilled with probability 0.7. Très juste."

# layout, verdicts for the first and the second answer, layout where there is no room for words
PAIRS = {
    "autoj-pair": ("{words}\n\nSo, the final decision is {verdict}.", "Response 1", "Response 2",
                   "So, the final decision is {verdict}."),
    "judgebench-vanilla": ("{verdict}", "Output (a)", "Output (b)", "{verdict}"),
    "judgebench-skywork-critic": ("{verdict}", "[[A]]", "[[B]]", "{verdict}"),
    "llmbar-choice": ("{words} Therefore, {verdict} is better.", "Output (a)", "Output (b)",
                      "Therefore, {verdict} is better."),
    "pandalm": ("{verdict}\n\n### Reason: {words}", "1", "2", "{verdict}"),
    "prometheus-relative": ("Feedback: {words} [RESULT] {verdict}", "A", "B",
                            "Feedback: See the result. [RESULT] {verdict}"),
    "promptfoo-select-best": ("{verdict}", "0", "1", "{verdict}"),
    "rewardbench-offsetbias": ("{verdict}", "Output (a)", "Output (b)", "{verdict}"),
    "rewardbench-con-j": ('{{"原因": "{words}", "更好的回答": {verdict}}}', "1", "2",
                          '{{"原因": "", "更好的回答": {verdict}}}'),
    "rewardbench-atla": ("**Reasoning:** {words}\n\n**Result:** {verdict}", "A", "B",
                         "**Reasoning:** See the result.\n\n**Result:** {verdict}"),
} | {
    name: ("{words}\n\n{verdict}", "[[A]]", "[[B]]", "{verdict}")
    for name in ("fastchat-pair", "fastchat-pair-math", "fastchat-pair-mt", "fastchat-pair-math-mt",
                 "rewardbench-pair", "rewardbench-pair-multi-turn", "rewardbench-rise")
}  # fmt: skip

# clients that know a tie
TIES = {"autoj-pair": "Tie", "pandalm": "Tie"} | {
    f"fastchat-pair{form}": "[[C]]" for form in ("", "-math", "-mt", "-math-mt")
}

# layout, scale, grades for 8.2 and for 1 of the judge's own scale, from 1 to 10
GRADES = {
    "autoj-single": ("{words}\n\nRating: [[{grade}]]", (1.0, 10.0), "8.2", "1"),
    "deepeval-geval": ('{{"reason": "{reason}", "score": {grade}}}', (0.0, 10.0), "8", "0"),  # 7.2 / 9 * 10
    "flowjudge": ("<feedback>\n{words}\n</feedback>\n<score>\n{grade}\n</score>", (1.0, 5.0), "4", "1"),
    "geval": ("{grade}", (1.0, 5.0), "4.2", "1"),  # 1 + 7.2 / 9 * 4
    "llmbar-rating": ("{grade}", (0.0, 9.0), "7", "0"),
    "prometheus-absolute": ("Feedback: {words} [RESULT] {grade}", (1.0, 5.0), "4", "1"),
    "promptfoo-g-eval": ('{{"score":{grade},"reason":"{reason}"}}', (0.0, 10.0), "8", "0"),
    "ragas-rubrics": ('{{"feedback": "{words}", "score": {grade}}}', (1.0, 5.0), "4", "1"),
    "ragas-simple-criteria": ('{{"reason": "{words}", "score": {grade}}}', (0.0, 5.0), "4", "0"),
    "rewardbench-ratings": ("{words}\n\n{grade}", (1.0, 10.0), "8", "1"),
} | {
    f"fastchat-single{form}": ("{words}\n\nRating: [[{grade}]]", (1.0, 10.0), "8.2", "1")
    for form in ("", "-math", "-mt", "-math-mt")
}  # fmt: skip

# reply to a probability of 0.7, and to one of 0.3 without words
LABELS = {
    "deepeval-geval-strict": ('{"reason": "Très juste.", "score": 1}', '{"reason": "Judged as a whole.", "score": 0}'),
    "flowjudge": ("<feedback>\nTrès juste.\n</feedback>\n<score>\n1\n</score>",
                  "<feedback>\nSee the score.\n</feedback>\n<score>\n0\n</score>"),
    "inspect-model-graded-qa": (f"{MOST_LIKELY}\n\nGRADE: C", "Fulfilled with probability 0.3.\n\nGRADE: I"),
    "inspect-model-graded-fact": (f"{MOST_LIKELY}\n\nGRADE: C", "Fulfilled with probability 0.3.\n\nGRADE: I"),
    "promptfoo-llm-rubric": (f'{{"reason": "{MOST_LIKELY}", "pass": true, "score": 0.7}}',
                             '{"reason": "Fulfilled with probability 0.3.", "pass": false, "score": 0.3}'),
    "promptfoo-closedqa": (f"{MOST_LIKELY}\nY", "Fulfilled with probability 0.3.\nN"),
    "promptfoo-factuality": (f'{{"category": "C", "reason": "{MOST_LIKELY}"}}',
                             '{"category": "D", "reason": "Fulfilled with probability 0.3."}'),
    "ragas-aspect-critic": (f'{{"reason": "{MOST_LIKELY}", "verdict": 1}}',
                            '{"reason": "Fulfilled with probability 0.3.", "verdict": 0}'),
    "ragas-discrete": (f'{{"reason": "{MOST_LIKELY}", "value": "pass"}}',
                       '{"reason": "Fulfilled with probability 0.3.", "value": "fail"}'),
    "simpleqa": ("A", "B"),
}  # fmt: skip


def rendered(name, task, finding, answers, scale=None, **options):
    facts = {"explanation": True, "good": "pass", "bad": "fail"}
    case = JudgeTask(dialect=name, kind=task, sample=sample_of("q", answers), scale=scale, facts=facts)
    return BY_NAME[name].render(case, ChatRequest(messages=(), **options), finding).texts


def pair(name, **options):
    finding = JudgeResult(winner=1, scores=(8.0, 6.0), draws=((8.0, 6.0), (5.0, 7.0)), reason="Très juste.")
    return rendered(name, "pair", finding, ("a", "b"), **options)


@pytest.mark.parametrize("name", PAIRS)
def test_a_pairs_reply(name):
    layout, first, second, _ = PAIRS[name]
    assert pair(name, n=2) == (
        layout.format(words=SAID[0], verdict=first),
        layout.format(words=SAID[1], verdict=second),
    )


@pytest.mark.parametrize("name", [name for name, (layout, *_) in PAIRS.items() if "{words}" in layout])
def test_a_pairs_words_are_cut_to_the_room_that_there_is(name):
    # what some dialects leave over: a tie's word is longer, and tags are counted roundly
    spare = {"pandalm": len("Tie") - len("1"), "rewardbench-atla": 5, "rewardbench-con-j": 8}.get(name, 0)
    layout, first, _, bare = PAIRS[name]
    whole = layout.format(words=SAID[0], verdict=first)
    room = len(whole) + spare
    assert pair(name, max_tokens=room) == (whole,)
    assert pair(name, max_tokens=room - 1) == (layout.format(words=SAID[0][:-1], verdict=first),)
    assert pair(name, max_tokens=1) == (bare.format(verdict=first),)


@pytest.mark.parametrize("name", PAIRS)
def test_where_all_is_open_the_answer_with_the_lower_hash_is_better_in_either_place(name):
    # sha256 of "b" is 3e23..., of "a" ca97...
    layout, first, second, _ = PAIRS[name]
    words = "Scores: 7 and 7 out of 10."
    for answers, verdict in ((("a", "b"), second), (("b", "a"), first)):
        assert rendered(name, "pair", JudgeResult(scores=(7.0, 7.0)), answers) == (
            layout.format(words=words, verdict=verdict),
        )


@pytest.mark.parametrize(("name", "verdict"), TIES.items())
def test_a_ties_reply(name, verdict):
    tie = JudgeResult(winner="tie", scores=(7.0, 7.0), first_better=0.6)
    text = PAIRS[name][0].format(words="Scores: 7 and 7 out of 10.", verdict=verdict)
    assert rendered(name, "pair", tie, ("a", "b")) == (text,)


@pytest.mark.parametrize("name", GRADES)
def test_a_grades_reply(name):
    layout, scale, *grades = GRADES[name]
    finding = JudgeResult(scores=(8.2,), draws=((8.2,), (1.0,)), reason="Très juste.")
    assert rendered(name, "grade", finding, ("a",), scale, n=2) == tuple(
        layout.format(words=words, reason=reason, grade=grade)
        for words, reason, grade in zip(GRADED, REASONS, grades, strict=True)
    )


def test_flow_judges_words_are_cut_to_the_room_that_there_is():
    finding = JudgeResult(scores=(8.2,), reason="Très juste.")
    layout, scale, grade, _ = GRADES["flowjudge"]

    def said(words):
        return (layout.format(words=words, grade=grade),)

    room = 50 + len(GRADED[0])  # 50 characters are left to the tags
    assert rendered("flowjudge", "grade", finding, ("a",), scale, max_tokens=room) == said(GRADED[0])
    assert rendered("flowjudge", "grade", finding, ("a",), scale, max_tokens=room - 1) == said(GRADED[0][:-1])
    assert rendered("flowjudge", "grade", finding, ("a",), scale, max_tokens=1) == said("See the score.")


@pytest.mark.parametrize("name", LABELS)
def test_a_labels_reply(name):
    yes, no = LABELS[name]
    told = {"answers": ("a",), "scale": (0.0, 1.0)}
    assert rendered(name, "label", JudgeResult(correct=0.7, reason="Très juste."), **told, n=2) == (yes, yes)
    assert rendered(name, "label", JudgeResult(correct=0.3), **told) == (no,)


@pytest.mark.parametrize("name", ["promptfoo-select-best", "rewardbench-four"])
def test_a_choices_reply(name):
    finding = JudgeResult(scores=(2.0, 9.0, 3.0, 4.0), draws=((2.0, 1.0, 9.0, 1.0), (2.0, 1.0, 3.0, 9.0)))
    expected = {
        "promptfoo-select-best": ("2", "3"),
        "rewardbench-four": (
            "Scores: 2, 1, 9 and 1 out of 10.\n\n[[C]]",
            "Scores: 2, 1, 3 and 9 out of 10.\n\n[[D]]",
        ),
    }
    assert rendered(name, "choice", finding, tuple("abcd"), n=2) == expected[name]
