"""Dialogues judged turn by turn, as pairs and by themselves; talk about a finished judgment."""

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import InputError
from judgelm.modes import Pairwise
from judgelm.modes.conversation import Conversation, per_order
from judgelm.modes.flow import interleave
from judgelm.modes.follow_up import Chat, FollowUp
from judgelm.records import GradeVerdict, Judgment, PairVerdict, Sample, Shown, Truncation
from judgelm.runs.runner import drive as run
from judgelm.runs.runner import judge
from tests.support.flows import broken, drive, reply

TURNS = [
    {"question": "q1", "answers": ["a1", "b1"]},
    {"question": "q2", "answers": ["a2", "b2"], "reference": "r2"},
]

DIALOGUE = Sample(id="d", question="q2", answers=("a2", "b2"), reference="r2", metadata={"turns": TURNS})

ALONE = Sample(
    id="s",
    question="q2",
    answers=("a2",),
    metadata={"turns": [{"question": "q1", "answers": ["a1"]}, {"question": "q2", "answers": ["a2"]}]},
)


def anchored():
    turns = [turn | {"reference": f"r{place}"} for place, turn in enumerate(ALONE.metadata["turns"], 1)]
    return Sample(id="s", question="q2", answers=("a2",), reference="r2", metadata={"turns": turns})


def parts(judgment):
    return [(one.part, one.order) for one in judgment.shown]


def test_each_turn_is_judged_with_those_before_it_and_the_means_decide():
    script = {"q1|a1|b1": "8 6\n", "q1|q2|r2|a1|a2|b1|b2": "3 9\n"}
    [judgment] = judge([DIALOGUE], Conversation(), ScriptedEngine(script))
    assert parts(judgment) == [("turn 1", (0, 1)), ("turn 2", (0, 1))]
    # (8 + 3) / 2 = 5.5 against (6 + 9) / 2 = 7.5
    assert (judgment.scores, judgment.verdict) == ((5.5, 7.5), PairVerdict(winner=2))
    assert [one.referenced for one in judgment.shown] == [False, True]


@pytest.mark.parametrize(("turns", "part"), [("last", "turn 2"), ("whole", "dialogue")])
def test_one_judgment_of_the_last_turn_or_of_all(turns, part):
    script = {"q1|q2|r2|a1|a2|b1|b2": "3 9\n"}
    [judgment] = judge([DIALOGUE], Conversation(turns=turns), ScriptedEngine(script | {"": ""}))
    assert parts(judgment) == [(part, (0, 1))]
    assert judgment.verdict == PairVerdict(winner=2)


def test_all_turns_and_orders_are_asked_at_once():
    asked, judgment = drive(
        Conversation(both_orders=True), [reply("8 6"), reply("6 8"), reply("5 7"), reply("7 5")], sample=DIALOGUE
    )
    assert len(asked) == 1
    assert parts(judgment) == [("turn 1", (0, 1)), ("turn 1", (1, 0)), ("turn 2", (0, 1)), ("turn 2", (1, 0))]
    # in sample order: turn 1 (8, 6) and (8, 6), turn 2 (5, 7) and (5, 7); means (6.5, 6.5) in both orders
    assert (judgment.scores, judgment.verdict, judgment.consistent) == ((6.5, 6.5), PairVerdict(winner="tie"), True)
    assert (judgment.prompt_tokens, judgment.completion_tokens) == (40, 12)


@pytest.mark.parametrize(("rule", "winner"), [("mean", 2), ("tie", "tie")])
def test_a_conflict_of_orders_is_one_of_the_whole_dialogue(rule, winner):
    # as given: turn 1 (8, 6), turn 2 (7, 7): means (7.5, 6.5), the first wins
    # exchanged, put back: turn 1 (4, 9), turn 2 (8, 6): means (6, 7.5), the second wins; of both (6.75, 7)
    replies = [reply("8 6"), reply("9 4"), reply("7 7"), reply("6 8")]
    _, judgment = drive(Conversation(both_orders=True, order_rule=rule), replies, sample=DIALOGUE)
    assert judgment.consistent is False
    assert (judgment.scores, judgment.verdict) == ((6.75, 7.0), PairVerdict(winner=winner))


def test_a_failed_turn_fails_its_order_and_so_the_judgment():
    replies = [reply("8 6"), reply("6 8"), reply("no idea"), reply("7 5")]
    _, judgment = drive(Conversation(both_orders=True), replies, sample=DIALOGUE)
    assert (judgment.verdict, judgment.scores, judgment.consistent) == (None, None, None)
    assert judgment.failure.code == "off_grammar"
    _, lenient = drive(Conversation(both_orders=True, accept_one_order=True), replies, sample=DIALOGUE)
    # the exchanged order alone: turn 1 (8, 6), turn 2 (5, 7); means (6.5, 6.5)
    assert (lenient.scores, lenient.verdict, lenient.consistent) == ((6.5, 6.5), PairVerdict(winner="tie"), None)


def test_the_probability_is_the_mean_over_turns_and_orders():
    replies = [
        reply("8 6", lines={"8 6": 0.9, "6 8": 0.1}),
        reply("6 8", lines={"6 8": 0.7, "8 6": 0.3}),
        reply("8 6", lines={"8 6": 0.6, "6 8": 0.4}),
        reply("8 6", lines={"6 8": 0.2, "8 6": 0.8}),
    ]
    mode = Conversation(both_orders=True, order_rule="probability")
    _, judgment = drive(mode, replies, sample=DIALOGUE)
    # as given (0.9 + 0.6) / 2 = 0.75; exchanged (0.3 + 0.8) / 2 = 0.55 for the second, 0.45 for the first; mean 0.6
    assert judgment.probability == pytest.approx(0.6)
    assert judgment.verdict == PairVerdict(winner=1)


def test_one_dialogue_gets_the_mean_of_its_grades():
    script = {"q1|a1": "8\n", "q1|q2|a1|a2": "Score: 5/10\n"}
    [judgment] = judge([ALONE], Conversation(), ScriptedEngine(script))
    assert (judgment.verdict, judgment.scores) == (GradeVerdict(score=6.5), (6.5,))
    assert parts(judgment) == [("turn 1", (0,)), ("turn 2", (0,))]


def test_one_dialogue_behind_its_references_goes_on_from_the_full_score():
    asked, judgment = drive(
        Conversation(reasons="all"), [reply(" 8"), reply(" 6")], [reply("x"), reply("y")], sample=anchored()
    )
    assert [one.prompt.prefill for one in asked[0]] == ["10", "10"]
    assert [one.prompt.prefill for one in asked[1]] == ["10 8\n", "10 6\n"]
    assert judgment.verdict == GradeVerdict(score=7.0)
    assert [(one.text, one.scores, one.reason) for one in judgment.shown] == [
        (" 8", (8.0,), "x"),
        (" 6", (6.0,), "y"),
    ]


def test_a_grade_has_its_distribution():
    # behind the references' score a grade begins with a blank; of 1 to 10, 8 has 0.75 and 6 has 0.25
    completion = reply(" 8", shares=[{8: 0.75, 6: 0.25}.get(value, 0) for value in range(1, 11)])
    asked, judgment = drive(Conversation(turns="whole", distribution=True), [completion], sample=anchored())
    assert asked[0][0].candidates == tuple(f" {value}" for value in range(1, 11))
    assert judgment.shown[0].grades.expected == pytest.approx(7.5)


@pytest.mark.parametrize("sample", [ALONE, anchored()])
@pytest.mark.parametrize(("bad", "code"), [(reply(" 80"), "out_of_range"), (broken("error", "gone"), "engine")])
def test_a_grade_that_failed_is_no_number(sample, bad, code):
    _, judgment = drive(Conversation(), [reply(" 8"), bad], sample=sample)
    assert (judgment.verdict, judgment.scores, judgment.failure.code) == (None, None, code)
    assert judgment.shown[0].scores == (8.0,)


def test_the_prompt_of_a_part_can_be_made_again():
    mode = Conversation(both_orders=True)
    asked, judgment = drive(mode, [reply("8 6")] * 4, sample=DIALOGUE)
    again = [mode.prompt_of(DIALOGUE, one.order, one.part) for one in judgment.shown]
    assert again == [request.prompt for request in asked[0]]


def test_per_order_takes_means_and_the_first_failure():
    shown = [
        Shown(order=(0, 1), text="8 6", part="turn 1", scores=(8.0, 6.0)),
        Shown(order=(0, 1), text="5 7", part="turn 2", scores=(5.0, 7.0)),
    ]
    [merged] = per_order(shown)
    assert (merged.part, merged.scores, merged.text) == ("dialogue", (6.5, 6.5), "8 6\n5 7")
    assert per_order([*shown[:1], Shown(order=(0, 1), text="So.", part="follow-up 1")]) == (shown[0],)


def test_flows_side_by_side_keep_their_order_and_may_end_apart():
    def flow(name, rounds):
        got = []
        for number in range(rounds):
            got += yield [f"{name}{number}"]
        return got

    both = interleave([flow("a", 1), flow("b", 0), flow("c", 2)])
    assert next(both) == ["a0", "c0"]
    assert both.send(["A0", "C0"]) == ["c1"]
    with pytest.raises(StopIteration) as ended:
        both.send(["C1"])
    assert ended.value.value == [["A0"], [], ["C0", "C1"]]


def asking(*questions):
    return Sample(id="1", question="q", answers=("a", "b"), metadata={"follow_ups": list(questions)})


def said(prompt):
    """What was said since the judge's prompt."""
    return [span.text for span in prompt.spans if span.kind != "template"][3:]


def test_each_question_is_asked_with_all_that_was_said_before():
    rounds = [reply("8 6")], [reply("The first is right.")], [reply(" It says so. ")], [reply("Ask a teacher.")]
    asked, judgment = drive(Chat(), *rounds, sample=asking("Why?", "And then?"))
    opening = "8 6\nThe first is right."
    assert said(asked[2][0].prompt) == [opening, "Why?"]
    assert said(asked[3][0].prompt) == [opening, "Why?", "It says so.", "And then?"]
    talk = [(one.part, one.text) for one in judgment.shown[1:]]
    assert talk == [("follow-up 1", "It says so."), ("follow-up 2", "Ask a teacher.")]
    assert (judgment.mode, judgment.verdict, judgment.scores) == ("chat", PairVerdict(winner=1), (8.0, 6.0))
    assert (judgment.prompt_tokens, judgment.completion_tokens) == (40, 12)


def test_a_judgment_that_failed_or_that_nobody_asks_about_is_not_talked_about():
    _, judgment = drive(Chat(), [reply("dunno")], sample=asking("Why?"))
    assert (judgment.verdict, len(judgment.shown)) == (None, 1)
    assert len(drive(Chat(reasons="none"), [reply("8 6")])[1].shown) == 1


@pytest.mark.parametrize(("bad", "code"), [(broken("error", "gone"), "engine"), (reply(" \n"), "off_grammar")])
def test_after_a_question_without_reply_no_other_is_asked(bad, code):
    _, judgment = drive(Chat(reasons="none"), [reply("8 6")], [bad], sample=asking("Why?", "And then?"))
    assert judgment.verdict == PairVerdict(winner=1)
    first, second = judgment.shown[1:]
    assert (first.failure.code, second.failure.code) == (code, code)
    assert second.failure.why == "not asked, because follow-up 1 has no reply"


def test_a_reply_without_end_is_kept_and_marked_and_the_talk_goes_on():
    rounds = [reply("8 6")], [reply("It is", finish="length")], [reply("Yes.")]
    asked, judgment = drive(Chat(reasons="none", reply_tokens=2), *rounds, sample=asking("Why?", "Sure?"))
    assert judgment.shown[1].failure.why.startswith("the reply did not end within 2 tokens")
    assert said(asked[2][0].prompt) == ["8 6", "Why?", "It is", "Sure?"]


JUDGED = Judgment(
    sample_id="1",
    mode="pair",
    verdict=PairVerdict(winner=1),
    shown=(
        Shown(order=(0, 1), text="8 6", scores=(8.0, 6.0)),
        Shown(order=(1, 0), text="5 7", scores=(5.0, 7.0), reason="why"),
    ),
)


def test_a_page_drives_the_same_flow_and_keeps_the_history():
    engine = ScriptedEngine(lambda prompt: f"{len(said(prompt))} texts")
    talk = FollowUp(mode=Pairwise(template="judgelm-chat"), sample=asking(), judgment=JUDGED)
    for place, expected in enumerate(["2 texts", "4 texts", "6 texts"]):
        [exchange] = run(["Why?"], talk, engine)
        assert (exchange.reply, exchange.failure, len(talk.history)) == (expected, None, place)
        talk = talk.after(exchange)


def test_the_explained_prompt_comes_first():
    talk = FollowUp(mode=Pairwise(both_orders=True), sample=asking(), judgment=JUDGED)
    [request] = next(talk("Why?"))
    assert said(request.prompt) == ["5 7\nwhy", "Why?"]
    assert [span.text for span in request.prompt.spans if span.kind == "answer"] == ["b", "a"]


def test_a_dialogue_can_be_talked_about():
    turns = [{"question": f"q{turn}", "answers": [f"x{turn}", f"y{turn}"]} for turn in (1, 2)]
    sample = Sample(id="d", question="q2", answers=("x2", "y2"), metadata={"turns": turns})
    mode = Conversation(turns="last")
    _, judgment = drive(mode, [reply("8 6")], sample=sample)
    [request] = next(FollowUp(mode=mode, sample=sample, judgment=judgment)("Why?"))
    assert [span.text for span in request.prompt.spans if span.kind == "answer"] == ["x1", "x2", "y1", "y2"]
    assert said(request.prompt)[-2:] == ["8 6", "Why?"]


def test_drawn_replies_have_seeds_of_their_own():
    talk = FollowUp(mode=Pairwise(), sample=asking(), judgment=JUDGED, temperature=1.0)
    [first] = next(talk("Why?"))
    flow = talk("Why?")
    next(flow)
    with pytest.raises(StopIteration) as ended:
        flow.send([reply("So.", truncations=(Truncation(answer=0, tokens_before=9, tokens_after=8),))])
    [second] = next(talk.after(ended.value.value)("Why?"))
    assert ended.value.value.truncations
    assert first.sampling.seed != second.sampling.seed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": Conversation()}, "of sample 1 by mode pair, not of 1 by conversation"),
        ({"sample": Sample(id="2", question="q", answers=("a", "b"))}, "of sample 1 by mode pair, not of 2 by pair"),
        ({"judgment": Judgment(sample_id="1", mode="pair", verdict=None, shown=())}, "no parseable reply"),
        ({}, "follow-up 1 is blank"),
    ],
)
def test_what_cannot_be_talked_about_is_said(change, message):
    with pytest.raises(InputError, match=message):
        next(FollowUp(**{"mode": Pairwise(), "sample": asking(), "judgment": JUDGED} | change)(" "))
