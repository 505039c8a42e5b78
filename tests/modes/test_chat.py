"""Talk about a finished judgment."""

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError, InputError
from judgelm.modes import Pairwise
from judgelm.modes.conversation import Chat, Conversation, FollowUp
from judgelm.records import Judgment, PairVerdict, Sample, Shown, Truncation
from judgelm.runs.runner import drive as run
from tests.support.flows import broken, drive, reply


def asking(*questions):
    return Sample(id="1", question="q", answers=("a", "b"), metadata={"follow_ups": list(questions)})


def said(prompt):
    """What was said since the judge's prompt."""
    return [span.text for span in prompt.spans if span.kind != "template"][3:]


def parts(judgment):
    return [(one.part, one.text) for one in judgment.shown]


def test_each_question_is_asked_with_all_that_was_said_before():
    rounds = [reply("8 6")], [reply("The first is right.")], [reply(" It says so. ")], [reply("Ask a teacher.")]
    asked, judgment = drive(Chat(), *rounds, sample=asking("Why?", "And then?"))
    opening = "8 6\nThe first is right."
    assert said(asked[2][0].prompt) == [opening, "Why?"]
    assert said(asked[3][0].prompt) == [opening, "Why?", "It says so.", "And then?"]
    assert parts(judgment)[1:] == [("follow-up 1", "It says so."), ("follow-up 2", "Ask a teacher.")]
    assert (judgment.mode, judgment.verdict, judgment.scores) == ("chat", PairVerdict(winner=1), (8.0, 6.0))
    assert (judgment.prompt_tokens, judgment.completion_tokens) == (40, 12)


def test_the_judge_is_asked_as_the_pair_mode_asks_and_the_verdict_is_its():
    sample, first = asking("Why?"), ([reply("8 6"), reply("9 4")], [reply("x")])
    asked, judgment = drive(Chat(both_orders=True), *first, [reply("y")], sample=sample)
    plain, pair = drive(Pairwise(both_orders=True, reasons="all"), *first, sample=sample)
    assert asked[:2] == plain
    assert (judgment.verdict, judgment.scores, judgment.consistent) == (pair.verdict, pair.scores, pair.consistent)
    assert judgment.shown[:2] == pair.shown


def test_without_questions_it_is_a_pair():
    _, judgment = drive(Chat(reasons="none"), [reply("8 6")], sample=asking())
    assert parts(judgment) == [("", "8 6")]
    assert drive(Chat(reasons="none"), [reply("8 6")])[1].verdict == PairVerdict(winner=1)


def test_a_judgment_that_failed_is_not_talked_about():
    _, judgment = drive(Chat(), [reply("dunno")], sample=asking("Why?"))
    assert (judgment.verdict, len(judgment.shown)) == (None, 1)


@pytest.mark.parametrize(
    ("bad", "code"),
    [(broken("error", "gone"), "engine"), (broken("too_long", "no room"), "too_long"), (reply(" \n"), "off_grammar")],
)
def test_after_a_question_without_reply_no_other_is_asked(bad, code):
    _, judgment = drive(Chat(reasons="none"), [reply("8 6")], [bad], sample=asking("Why?", "And then?"))
    assert judgment.verdict == PairVerdict(winner=1)
    first, second = judgment.shown[1:]
    assert (first.failure.code, second.failure.code) == (code, code)
    assert second.failure.why == "not asked, since follow-up 1 has no reply"


def test_a_reply_without_end_is_kept_and_marked_and_the_talk_goes_on():
    rounds = [reply("8 6")], [reply("It is", finish="length")], [reply("Yes.")]
    asked, judgment = drive(Chat(reasons="none", reply_tokens=2), *rounds, sample=asking("Why?", "Sure?"))
    assert judgment.shown[1].failure.why == "no end within 2 tokens or the window"
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
        ({"judgment": Judgment(sample_id="1", mode="pair", verdict=None, shown=())}, "no readable reply to talk about"),
    ],
)
def test_what_cannot_be_talked_about_is_said(change, message):
    with pytest.raises(InputError, match=message):
        FollowUp(**{"mode": Pairwise(), "sample": asking(), "judgment": JUDGED} | change)


def test_wrong_questions_and_options_are_named():
    with pytest.raises(InputError, match="follow-up 1 is blank"):
        next(FollowUp(mode=Pairwise(), sample=asking(), judgment=JUDGED)(" "))
    for wrong in ("Why?", ["Why?", 7], ["Why?", ""]):
        with pytest.raises(InputError, match="sample 1: follow_ups: expected a list of questions"):
            next(Chat()(Sample(id="1", question="q", answers=("a", "b"), metadata={"follow_ups": wrong})))
    with pytest.raises(ConfigError, match="reply_tokens is 0"):
        Chat(reply_tokens=0)
