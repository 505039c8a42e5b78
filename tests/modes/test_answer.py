"""A question as chat and as plain text, and what becomes of the answer."""

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError
from judgelm.modes.answer import Answering, Decoding, Draw
from judgelm.records import Sample, Span
from judgelm.runs.runner import drive as run
from tests.support.flows import broken, drive, reply

QUESTION = Sample(id="7", question="why?", answers=())
DRAW = Draw(QUESTION, Decoding())


def test_a_chat_model_gets_messages():
    [[request]], answer = drive(Answering(system="Be brief."), [reply(" so \n")], sample=DRAW)
    assert request.prompt.chat
    assert request.prompt.spans == (Span("Be brief.", "template", "system"), Span("why?", "question", "user"))
    assert (answer.text, answer.failure, answer.finish_reason) == ("so", None, "stop")


def test_a_base_model_gets_text_and_is_stopped_before_it_asks_on():
    [[request]], _ = drive(Answering(chat=False), [reply("so")], sample=DRAW)
    assert "".join(span.text for span in request.prompt.spans) == "Question: why?\nAnswer:"
    assert request.sampling.stop == ("\nQuestion:",)


def test_a_decoding_has_a_name_and_the_question_its_own_seed():
    warm = Draw(QUESTION, Decoding(temperature=0.7, seed=1))
    assert (DRAW.decoding.name, warm.decoding.name) == ("greedy", "temperature=0.7,seed=1")
    [[one]], _ = drive(Answering(), [reply("x")], sample=warm)
    [[two]], _ = drive(Answering(), [reply("x")], sample=Draw(QUESTION, Decoding(temperature=0.7, seed=2)))
    assert one.sampling.temperature == two.sampling.temperature == 0.7
    assert one.sampling.seed != two.sampling.seed


def test_another_question_under_the_same_id_is_another_draw():
    assert DRAW.id != Draw(Sample(id="7", question="how?", answers=()), Decoding()).id


def test_what_was_not_answered_has_no_text():
    _, answer = drive(Answering(), [broken()], sample=DRAW)
    assert (answer.text, answer.failure.code, answer.failure.why) == (None, "engine", "out of order")


def test_the_runner_drives_answers_as_it_drives_judgments():
    draws = [Draw(Sample(id=str(i), question=f"q{i}", answers=()), Decoding()) for i in range(20)]
    engine = ScriptedEngine(lambda prompt: prompt.spans[-1].text.upper(), max_in_flight=3)
    assert {one.draw.question.id: one.text for one in run(draws, Answering(), engine)} == {
        str(i): f"Q{i}" for i in range(20)
    }


def test_a_plain_form_needs_a_place_for_the_question():
    with pytest.raises(ConfigError, match="it must hold"):
        Answering(plain="Question:")
