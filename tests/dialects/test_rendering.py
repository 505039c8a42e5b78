"""Each dialect's reply to one finding, to the letter, and what its clients read in them."""

from dataclasses import replace

import pytest

from judgelm.dialects.catalog import DIALECTS
from judgelm.dialects.contract import ChatRequest, JudgeResult, JudgeTask, sample_of
from judgelm.dialects.replies import rescale
from tests.dialects.client_parsers import CLIENTS, as_choice, choice_of, faireval
from tests.support import captures

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


# what a careless client could read as another verdict than the judge's
HOSTILE = (
    '[[B]] and [[A]]. Output (b) is better. **Result:** B {"better_answer": "2", "verdict": 0, "pass": false} 9/10\n'
    "GRADE: P [RESULT] B. Result: B\nThe final decision is Response 2. Rating: [[3]]\n</feedback><score>1</score>\n"
    "N\n(D)"
)


def rendered(name, kind, result, answers, scale=None, *, explanation=True, **options):
    labels = ("A>>B", "A>B", "A=B", "B>A", "B>>A")
    facts = {"explanation": explanation, "good": "pass", "bad": "fail", "labels": labels}
    task = JudgeTask(dialect=name, kind=kind, sample=sample_of("q", answers), scale=scale, facts=facts)
    return BY_NAME[name].render(task, ChatRequest(messages=(), **options), result)


def read_by(folder, kind, result, answers, scale=None, room=None):
    """The conclusion of a client from the reply to a hostile judge."""
    dialect, read, _ = CLIENTS[folder]
    result = replace(result, reason=HOSTILE)
    explanation = folder != "llmbar__Vanilla"
    return read(as_choice(rendered(dialect, kind, result, answers, scale, explanation=explanation, max_tokens=room)))


def clients(names, *others):
    return [folder for folder, client in CLIENTS.items() if client.dialect in names or folder in others]


@pytest.mark.parametrize("room", [None, 8])
@pytest.mark.parametrize("folder", clients(PAIRS, "judgebench__arena_hard", "judgebench__judge_lm"))
def test_a_client_reads_the_winner_whatever_the_judges_words_are(folder, room):
    knows_ties = CLIENTS[folder].dialect in (*TIES, "arena-hard", "judgelm")
    for winner, chance, conclusion in ((1, 0.9, 1), (2, 0.1, 2), ("tie", 0.6, 1), ("tie", 0.4, 2)):
        scores = {1: (8.0, 6.0), 2: (6.0, 8.0), "tie": (7.0, 7.0)}[winner]
        result = JudgeResult(winner=winner, scores=scores, first_better=chance)
        read = read_by(folder, "pair", result, ("a", "b"), room=room)
        assert read == ("tie" if winner == "tie" and knows_ties else conclusion)


@pytest.mark.parametrize("folder", clients(GRADES))
def test_a_client_reads_the_grade_whatever_the_judges_words_are(folder):
    _, scale, *_ = GRADES[CLIENTS[folder].dialect]
    for score in (1.0, 4.375, 5.5, 8.2, 10.0):
        read = read_by(folder, "grade", JudgeResult(scores=(score,)), ("a",), scale)
        assert read == pytest.approx(rescale(score, scale), abs=0.5)  # some clients want whole grades


@pytest.mark.parametrize("folder", clients(LABELS))
def test_a_client_reads_the_label_whatever_the_judges_words_are(folder):
    for correct in (0.0, 0.49, 0.5, 1.0):
        assert read_by(folder, "label", JudgeResult(correct=correct), ("a",), (0.0, 1.0)) == (correct >= 0.5)


@pytest.mark.parametrize(("scores", "best"), [((2, 9, 3, 4), 1), ((1, 2, 3, 9.5), 3), ((9, 1, 1, 1), 0)])
def test_a_client_reads_the_best_of_four_whatever_the_judges_words_are(scores, best):
    assert read_by("rewardbench_v2_four", "choice", JudgeResult(scores=scores), tuple("abcd")) == best


def pair(name, **options):
    finding = JudgeResult(winner=1, scores=(8.0, 6.0), draws=((8.0, 6.0), (5.0, 7.0)), reason="Très juste.")
    return rendered(name, "pair", finding, ("a", "b"), **options).texts


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


@pytest.mark.parametrize(("name", "verdict"), TIES.items())
def test_a_ties_reply(name, verdict):
    tie = JudgeResult(winner="tie", scores=(7.0, 7.0), first_better=0.6)
    text = PAIRS[name][0].format(words="Scores: 7 and 7 out of 10.", verdict=verdict)
    assert rendered(name, "pair", tie, ("a", "b")).texts == (text,)


@pytest.mark.parametrize("name", GRADES)
def test_a_grades_reply(name):
    layout, scale, *grades = GRADES[name]
    finding = JudgeResult(scores=(8.2,), draws=((8.2,), (1.0,)), reason="Très juste.")
    assert rendered(name, "grade", finding, ("a",), scale, n=2).texts == tuple(
        layout.format(words=words, reason=reason, grade=grade)
        for words, reason, grade in zip(GRADED, REASONS, grades, strict=True)
    )


def test_flow_judges_words_are_cut_to_the_room_that_there_is():
    finding = JudgeResult(scores=(8.2,), reason="Très juste.")
    layout, scale, grade, _ = GRADES["flowjudge"]

    room = 50 + len(GRADED[0])  # 50 characters are left to the tags
    for max_tokens, words in ((room, GRADED[0]), (room - 1, GRADED[0][:-1]), (1, "See the score.")):
        reply = rendered("flowjudge", "grade", finding, ("a",), scale, max_tokens=max_tokens)
        assert reply.texts == (layout.format(words=words, grade=grade),)


@pytest.mark.parametrize("name", LABELS)
def test_a_labels_reply(name):
    yes, no = LABELS[name]
    fulfilled = JudgeResult(correct=0.7, reason="Très juste.")
    assert rendered(name, "label", fulfilled, ("a",), (0.0, 1.0), n=2).texts == (yes, yes)
    assert rendered(name, "label", JudgeResult(correct=0.3), ("a",), (0.0, 1.0)).texts == (no,)


@pytest.mark.parametrize("name", ["promptfoo-select-best", "rewardbench-four"])
def test_a_choices_reply(name):
    finding = JudgeResult(scores=(2.0, 9.0, 3.0, 4.0), draws=((2.0, 1.0, 9.0, 1.0), (2.0, 1.0, 3.0, 9.0)))
    expected = {
        "promptfoo-select-best": ("2", "3"),
        "rewardbench-four": ("Scores: 2, 1, 9 and 1 out of 10.\n\n[[C]]", "Scores: 2, 1, 3 and 9 out of 10.\n\n[[D]]"),
    }
    assert rendered(name, "choice", finding, tuple("abcd"), n=2).texts == expected[name]


# The parsers here conclude what the clients' own did, reply by captured reply


@pytest.mark.parametrize("folder", CLIENTS)
def test_the_parser_here_concludes_what_the_client_did(shared_data, folder):
    client = CLIENTS[folder]
    for reply, parsed in captures.replies(shared_data, folder):
        conclusion = client.concluded(parsed)
        wanted = pytest.approx(conclusion) if isinstance(conclusion, float) else conclusion
        assert client.read(choice_of(reply)) == wanted, reply


def test_faireval_averages_the_scores_of_all_replies(shared_data):
    for reply, parsed in captures.replies(shared_data, "faireval"):
        texts = [choice["message"]["content"] for choice in reply["choices"]]
        scores = [scores for text in texts if (scores := faireval(text)) is not None]
        every = scores + [(second, first) for first, second in scores]  # the same replies in the other order, put back
        means = [sum(column) / len(every) for column in zip(*every, strict=True)] if every else None
        assert means == parsed.get("score")
