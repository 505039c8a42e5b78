"""A judge that thinks concludes in every mode what it would without: its thinking reaches no parser."""

from dataclasses import replace

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.judges.released import released_judge
from judgelm.modes.conversation import Conversation
from judgelm.modes.follow_up import Chat
from judgelm.modes.multi import Multi
from judgelm.modes.multimodal import Multimodal
from judgelm.modes.pairwise import Pairwise
from judgelm.modes.qa import QaCorrectness
from judgelm.modes.rubric import Rubric
from judgelm.modes.self_reference import Correctness, SelectiveSelfReference
from judgelm.modes.single import Single
from judgelm.modes.thinking import separate_thinking
from judgelm.parsing.thinking import NOT_ASKED, Thinking
from judgelm.records import Completion, Prompt, Request, Sample, Sampling, Span, TokenLogprobs
from judgelm.runs.runner import judge
from tests.support import thinking_model
from tests.support.thinking_model import THOUGHT, going_on

PAIR = Sample(id="1", question="q", answers=("a", "b"))
ONE = Sample(id="1", question="q", answers=("a",), reference="r")
TURNS = [{"question": "q1", "answers": ["a1", "b1"]}, {"question": "q2", "answers": ["a", "b"]}]
DIALOGUE = replace(PAIR, question="q2", metadata={"turns": TURNS})
WAYS = {
    "pair": (Pairwise(reasons="all", distribution=True, both_orders=True), PAIR, "8 6\nBecause."),
    "pair, chat": (Pairwise(template="judgelm-chat", reasons="all"), PAIR, "8 6\nBecause."),
    "single, forced": (Single(reasons="all"), ONE, "10 7\nFine."),
    "multi": (Multi(reasons="all"), Sample(id="1", question="q", answers=("a", "b", "c")), "8 6 5\nBecause."),
    "rubric": (Rubric(dimensions=("logical_correctness",)), replace(ONE, reference=None), "So. Answer: correct"),
    "correctness": (Correctness(task="number", self_reference="guided"), ONE, "The answer is 17.\n[[Correct]]"),
    "qa": (QaCorrectness(), ONE, "So. <ans>CORRECT</ans>"),
    "ssr": (SelectiveSelfReference(task="choice", distribution=True), PAIR, "The answer is (A).\n[[1]]"),
    "released": (released_judge("prometheus-2").mode("pair", {}), PAIR, "So. [RESULT] A"),
    "pandalm": (released_judge("pandalm").mode("pair", {}), PAIR, "1\n\nwhy"),
    "conversation": (Conversation(reasons="all"), DIALOGUE, "8 6\nBecause."),
    "chat": (Chat(template="judgelm-chat"), replace(PAIR, metadata={"follow_ups": ["Why?"]}), "8 6\nBecause."),
    "multimodal": (Multimodal(reasons="all"), ONE, "10 7\nFine."),
}


@pytest.mark.parametrize("resumes", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_thinking_does_not_change_the_judgment(way, resumes):
    mode, sample, reply = WAYS[way]
    if not resumes and way in ("single, forced", "multimodal"):
        pytest.skip("a chat server cannot be made to go on behind thinking: a forced score is not thought about")
    [plain] = judge([sample], mode, thinking_model.engine(going_on(reply), asked="absent", thinks=False))
    [thought] = judge([sample], mode, thinking_model.engine(going_on(reply), resumes=resumes))
    assert plain.verdict is not None
    assert (thought.verdict, thought.scores, thought.failure) == (plain.verdict, plain.scores, None)
    thoughtless, thinking_first = (
        [(shown.text, shown.label, shown.reason) for shown in judgment.shown]
        + [(solve.text, solve.answer) for solve in judgment.self_answers]
        for judgment in (plain, thought)
    )
    assert thinking_first == thoughtless
    assert {part.thinking for part in (*thought.shown, *thought.self_answers)} == {THOUGHT}
    if resumes:
        assert thought.probability == plain.probability


@pytest.mark.parametrize(("reason", "code"), [("error", "engine"), ("too_long", "too_long")])
@pytest.mark.parametrize("way", WAYS)
def test_what_was_not_answered_is_a_failure_in_every_mode(way, reason, code):
    mode, sample, _ = WAYS[way]
    engine = ScriptedEngine({})
    engine.answer = lambda request: Completion.failed(request.key, "out of order", reason)
    [judgment] = judge([sample], mode, engine)
    assert (judgment.verdict, judgment.scores, judgment.failure.code) == (None, None, code)
    assert "out of order" in judgment.failure.text + judgment.failure.why


@pytest.mark.parametrize("way", ["correctness", "rubric", "qa", "ssr", "released"])
def test_a_judge_that_thinks_unasked_is_parsed_alike(way):
    mode, sample, reply = WAYS[way]
    mode = replace(mode, distribution=False) if way == "ssr" else mode
    [thought] = judge([sample], mode, thinking_model.engine(going_on(reply), asked="absent"))
    assert thought.verdict is not None
    assert {shown.thinking for shown in thought.shown} == {THOUGHT}


def test_thinking_first_the_score_line_in_a_request_of_its_own():
    prompt = Prompt(spans=(Span("q", "question", "user"),), chat=True)
    wanted = Request(key="0", prompt=prompt, sampling=Sampling(max_tokens=24, stop=("\n",)), candidates=("8 6",))

    def flow():
        [line] = yield [wanted]
        going_on = replace(wanted, prompt=replace(prompt, prefill="8 6\n"), candidates=())
        [reason] = yield [replace(going_on, sampling=Sampling(max_tokens=512, reserve=24))]
        return line, reason

    def done(text, **fields):
        return Completion(key="0", texts=(text,), finish_reasons=("stop",), prompt_tokens=5, completion_tokens=2)

    asking = separate_thinking(flow(), Thinking(mode="on", max_tokens=1000, resumes=True))
    [first] = next(asking)
    # the thinking has its own room and ends with its tag; the answers are cut as for all that comes behind: 1000 + 24
    assert first.sampling == Sampling(max_tokens=1000, stop=("</think>",), include_stop=True, reserve=1024)
    assert (first.candidates, first.prompt.prefill) == ((), "")
    [second] = asking.send([done("<think>\nHm.\n</think>")])
    assert second.prompt.prefill == "<think>\nHm.\n</think>\n\n"
    assert (second.sampling, second.candidates) == (replace(wanted.sampling, reserve=1024), ("8 6",))
    [third] = asking.send([done("8 6")])
    # the reason goes on from the same thinking
    assert third.prompt.prefill == "<think>\nHm.\n</think>\n\n8 6\n"
    assert third.sampling == Sampling(max_tokens=512, reserve=1024)
    with pytest.raises(StopIteration) as finished:
        asking.send([done("Because.")])
    line, reason = finished.value.value
    assert (line.texts, line.thinking, line.prompt_tokens, line.completion_tokens) == (("8 6",), ("Hm.",), 10, 4)
    assert (reason.texts, reason.thinking) == (("Because.",), ())


def test_tokens_of_the_thinking_are_left_out():
    request = Request(
        key="0", prompt=Prompt(spans=(Span("q"),), chat=True), sampling=Sampling(max_tokens=9, logprobs=0)
    )

    def flow():
        [reply] = yield [request]
        return reply

    asking = separate_thinking(flow(), Thinking())
    next(asking)
    tokens = tuple(
        TokenLogprobs(token=text, logprob=-1.0) for text in ("<think>", "Hm.", "</think>", "\n\n", "8", " 6")
    )
    whole = "".join(token.token for token in tokens)
    with pytest.raises(StopIteration) as finished:
        asking.send([Completion(key="0", texts=(whole,), finish_reasons=("stop",), logprobs=(tokens,))])
    reply = finished.value.value
    assert (reply.texts, [token.token for token in reply.logprobs[0]]) == (("8 6",), ["8", " 6"])


@pytest.mark.parametrize(
    ("reply", "asked", "advice"),
    [
        ("<think>\n8 6 [[1]] so", "on", "1000 tokens; raise --thinking-tokens"),
        ("analysis8 6 [[1]]\nAnswer: correct", "absent", "--thinking on"),
        ("[THINK]8 6 [[1]] <ans>CORRECT</ans>\nso", "absent", "--thinking on"),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_unfinished_thinking_is_truncated(way, reply, asked, advice):
    mode, sample, _ = WAYS[way]
    [judgment] = judge([sample], mode, thinking_model.engine(lambda prompt: reply, asked=asked, thinks=False))
    assert (judgment.verdict, judgment.failure.code) == (None, "truncated")
    assert advice in judgment.failure.why
    assert all(shown.thinking for shown in judgment.shown)


def test_a_quoted_closing_tag_does_not_end_the_thinking():
    begun = "<think>\nThe first answer writes </think>"
    rest = " 9 2\nas a judge would. The second is right.\n</think>"

    def script(prompt):
        return {"": begun, begun: rest, f"{begun}{rest}\n\n": "3 8\nSo."}[prompt.prefill]

    engine = thinking_model.engine(script, thinks=False)
    [judgment] = judge([PAIR], Pairwise(template="judgelm-chat"), engine)
    assert judgment.scores == (3, 8)
    assert judgment.shown[0].thinking == f"{begun}{rest}".removeprefix("<think>\n").removesuffix("\n</think>")


@pytest.mark.parametrize(("reply", "thinks"), [("8 6", True), ("<think>Hm.</think>\n8 6\nSo.", False)])
def test_the_failure_of_unrequested_thinking_names_the_option(reply, thinks):
    # the score line ends with its line: of the block only its opening is written, or a stop string comes right behind
    [judgment] = judge([PAIR], Pairwise(), thinking_model.engine(going_on(reply), asked="absent", thinks=thinks))
    assert judgment.failure.code == "truncated"
    assert "use --thinking on, or off" in judgment.failure.why


def test_a_judge_that_does_not_think_although_asked_is_parsed_as_it_is():
    engine = thinking_model.engine(going_on("8 6\nSo."), thinks=False)
    [judgment] = judge([PAIR], Pairwise(reasons="all"), engine)
    # a plain prompt opens the block itself, and this judge never closes it
    assert judgment.failure.code == "truncated"
    [judgment] = judge([PAIR], Pairwise(template="judgelm-chat", reasons="all"), engine)
    assert (judgment.scores, judgment.reason, judgment.shown[0].thinking) == ((8, 6), "So.", None)


def test_closing_a_flow_closes_the_modes():
    closed = []

    def flow():
        try:
            yield []
        finally:
            closed.append(True)

    asking = separate_thinking(flow(), NOT_ASKED)
    next(asking)
    asking.close()
    assert closed == [True]
