"""Dialogues judged turn by turn, as pairs and by themselves; talk about a finished judgment."""

from dataclasses import replace

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

TURNS = [{"question": "q1", "answers": ["a1", "b1"]}, {"question": "q2", "answers": ["a2", "b2"], "reference": "r2"}]

DIALOGUE = Sample(id="d", question="q2", answers=("a2", "b2"), reference="r2", metadata={"turns": TURNS})

ALONE_TURNS = [{"question": f"q{n}", "answers": [f"a{n}"]} for n in (1, 2)]
ALONE = Sample(id="s", question="q2", answers=("a2",), metadata={"turns": ALONE_TURNS})
REFERENCED_TURNS = [turn | {"reference": f"r{n}"} for n, turn in enumerate(ALONE_TURNS, 1)]
ANCHORED = replace(ALONE, reference="r2", metadata={"turns": REFERENCED_TURNS})


def parts(judgment):
    return [(shown.part, shown.order) for shown in judgment.shown]


def test_each_turn_is_judged_with_those_before_it_and_the_means_decide():
    script = {"q1|a1|b1": "8 6\n", "q1|q2|r2|a1|a2|b1|b2": "3 9\n"}
    [judgment] = judge([DIALOGUE], Conversation(), ScriptedEngine(script))
    assert parts(judgment) == [("turn 1", (0, 1)), ("turn 2", (0, 1))]
    # (8 + 3) / 2 = 5.5 against (6 + 9) / 2 = 7.5
    assert (judgment.scores, judgment.verdict) == ((5.5, 7.5), PairVerdict(winner=2))
    assert [shown.referenced for shown in judgment.shown] == [False, True]


@pytest.mark.parametrize(("turns", "part"), [("last", "turn 2"), ("whole", "dialogue")])
def test_one_judgment_of_the_last_turn_or_of_all(turns, part):
    script = {"q1|q2|r2|a1|a2|b1|b2": "3 9\n"}
    [judgment] = judge([DIALOGUE], Conversation(turns=turns), ScriptedEngine(script | {"": ""}))
    assert parts(judgment) == [(part, (0, 1))]
    assert judgment.verdict == PairVerdict(winner=2)


def test_all_turns_and_orders_are_one_round():
    replies = [reply("8 6"), reply("6 8"), reply("5 7"), reply("7 5")]
    [_], judgment = drive(Conversation(both_orders=True), replies, sample=DIALOGUE)
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
    replies = [reply("8 6", lines={"8 6": first, "6 8": 1 - first}) for first in (0.9, 0.3, 0.6, 0.8)]
    _, judgment = drive(Conversation(both_orders=True, order_rule="probability"), replies, sample=DIALOGUE)
    # as given (0.9 + 0.6) / 2 = 0.75; exchanged (0.3 + 0.8) / 2 = 0.55 for the second, 0.45 for the first; mean 0.6
    assert judgment.probability == pytest.approx(0.6)
    assert judgment.verdict == PairVerdict(winner=1)


def test_one_dialogue_gets_the_mean_of_its_grades():
    script = {"q1|a1": "8\n", "q1|q2|a1|a2": "Score: 5/10\n"}
    [judgment] = judge([ALONE], Conversation(), ScriptedEngine(script))
    assert (judgment.verdict, judgment.scores) == (GradeVerdict(score=6.5), (6.5,))
    assert parts(judgment) == [("turn 1", (0,)), ("turn 2", (0,))]


def test_one_dialogue_behind_its_references_goes_on_from_the_full_score():
    rounds = [reply(" 8"), reply(" 6")], [reply("x"), reply("y")]
    requests, judgment = drive(Conversation(reasons="all"), *rounds, sample=ANCHORED)
    prefills = [[request.prompt.prefill for request in each] for each in requests]
    assert prefills == [["10", "10"], ["10 8\n", "10 6\n"]]
    assert judgment.verdict == GradeVerdict(score=7.0)
    shown = [(shown.text, shown.scores, shown.reason) for shown in judgment.shown]
    assert shown == [(" 8", (8.0,), "x"), (" 6", (6.0,), "y")]


def test_a_grade_has_its_distribution():
    # behind the references' score a grade begins with a blank; of 1 to 10, 8 has 0.75 and 6 has 0.25
    completion = reply(" 8", shares=[{8: 0.75, 6: 0.25}.get(value, 0) for value in range(1, 11)])
    asked, judgment = drive(Conversation(turns="whole", distribution=True), [completion], sample=ANCHORED)
    assert asked[0][0].candidates == tuple(f" {value}" for value in range(1, 11))
    assert judgment.shown[0].grades.expected == pytest.approx(7.5)


@pytest.mark.parametrize("sample", [ALONE, ANCHORED])
@pytest.mark.parametrize(("bad", "code"), [(reply(" 80"), "out_of_range"), (broken("error", "gone"), "engine")])
def test_a_failed_grade_is_not_a_number(sample, bad, code):
    _, judgment = drive(Conversation(), [reply(" 8"), bad], sample=sample)
    assert (judgment.verdict, judgment.scores, judgment.failure.code) == (None, None, code)
    assert judgment.shown[0].scores == (8.0,)


def test_the_prompt_of_a_part_can_be_made_again():
    mode = Conversation(both_orders=True)
    asked, judgment = drive(mode, [reply("8 6")] * 4, sample=DIALOGUE)
    again = [mode.prompt_of(DIALOGUE, shown.order, shown.part) for shown in judgment.shown]
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


def sample_with(*questions):
    return Sample(id="1", question="q", answers=("a", "b"), metadata={"follow_ups": list(questions)})


def exchanged(prompt):
    """The texts since the judge's prompt."""
    return [span.text for span in prompt.spans if span.kind != "template"][3:]


def test_each_follow_up_has_the_whole_talk_before_it():
    rounds = [reply("8 6")], [reply("The first is right.")], [reply(" It says so. ")], [reply("Ask a teacher.")]
    asked, judgment = drive(Chat(), *rounds, sample=sample_with("Why?", "And then?"))
    opening = "8 6\nThe first is right."
    assert exchanged(asked[2][0].prompt) == [opening, "Why?"]
    assert exchanged(asked[3][0].prompt) == [opening, "Why?", "It says so.", "And then?"]
    talk = [(shown.part, shown.text) for shown in judgment.shown[1:]]
    assert talk == [("follow-up 1", "It says so."), ("follow-up 2", "Ask a teacher.")]
    assert (judgment.mode, judgment.verdict, judgment.scores) == ("chat", PairVerdict(winner=1), (8.0, 6.0))
    assert (judgment.prompt_tokens, judgment.completion_tokens) == (40, 12)


def test_a_judgment_that_failed_or_that_nobody_asks_about_is_not_talked_about():
    _, judgment = drive(Chat(), [reply("dunno")], sample=sample_with("Why?"))
    assert (judgment.verdict, len(judgment.shown)) == (None, 1)
    assert len(drive(Chat(reasons="none"), [reply("8 6")])[1].shown) == 1


@pytest.mark.parametrize(("bad", "code"), [(broken("error", "gone"), "engine"), (reply(" \n"), "off_grammar")])
def test_no_follow_up_is_asked_after_one_without_a_reply(bad, code):
    _, judgment = drive(Chat(reasons="none"), [reply("8 6")], [bad], sample=sample_with("Why?", "And then?"))
    assert judgment.verdict == PairVerdict(winner=1)
    first, second = judgment.shown[1:]
    assert (first.failure.code, second.failure.code) == (code, code)
    assert second.failure.why == "not asked, because follow-up 1 has no reply"


def test_a_reply_without_end_is_kept_and_marked_and_the_talk_goes_on():
    rounds = [reply("8 6")], [reply("It is", finish="length")], [reply("Yes.")]
    asked, judgment = drive(Chat(reasons="none", reply_tokens=2), *rounds, sample=sample_with("Why?", "Sure?"))
    assert judgment.shown[1].failure.why.startswith("the reply did not end within 2 tokens")
    assert exchanged(asked[2][0].prompt) == ["8 6", "Why?", "It is", "Sure?"]


SHOWN = Shown(order=(0, 1), text="8 6", scores=(8.0, 6.0)), Shown(order=(1, 0), text="5 7", scores=(5, 7), reason="why")
JUDGED = Judgment(sample_id="1", mode="pair", verdict=PairVerdict(winner=1), shown=SHOWN)


def test_a_page_drives_the_same_flow_and_keeps_the_history():
    engine = ScriptedEngine(lambda prompt: f"{len(exchanged(prompt))} texts")
    talk = FollowUp(mode=Pairwise(template="judgelm-chat"), sample=sample_with(), judgment=JUDGED)
    for place, expected in enumerate(["2 texts", "4 texts", "6 texts"]):
        [exchange] = run(["Why?"], talk, engine)
        assert (exchange.reply, exchange.failure, len(talk.history)) == (expected, None, place)
        talk = talk.after(exchange)


def test_the_explained_prompt_comes_first():
    talk = FollowUp(mode=Pairwise(both_orders=True), sample=sample_with(), judgment=JUDGED)
    [request] = next(talk("Why?"))
    assert exchanged(request.prompt) == ["5 7\nwhy", "Why?"]
    assert [span.text for span in request.prompt.spans if span.kind == "answer"] == ["b", "a"]


def test_a_dialogue_can_be_talked_about():
    mode = Conversation(turns="last")
    _, judgment = drive(mode, [reply("8 6")], sample=DIALOGUE)
    [request] = next(FollowUp(mode=mode, sample=DIALOGUE, judgment=judgment)("Why?"))
    assert [span.text for span in request.prompt.spans if span.kind == "answer"] == ["a1", "a2", "b1", "b2"]
    assert exchanged(request.prompt)[-2:] == ["8 6", "Why?"]


def test_drawn_replies_have_seeds_of_their_own():
    talk = FollowUp(mode=Pairwise(), sample=sample_with(), judgment=JUDGED, temperature=1.0)
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
        ({"mode": Conversation()}, "sample 1 by mode pair, not for 1 by conversation"),
        ({"sample": Sample(id="2", question="q", answers=("a", "b"))}, "sample 1 by mode pair, not for 2 by pair"),
        ({"judgment": Judgment(sample_id="1", mode="pair", verdict=None, shown=())}, "no parseable reply"),
        ({}, "follow-up 1 is blank"),
    ],
)
def test_follow_ups_of_other_or_failed_judgments_are_rejected(change, message):
    with pytest.raises(InputError, match=message):
        next(FollowUp(**{"mode": Pairwise(), "sample": sample_with(), "judgment": JUDGED} | change)(" "))
