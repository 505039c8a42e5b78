"""A question as chat and as plain text, and what becomes of the answer."""

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError, InputError
from judgelm.modes.answer import AnswerMode, AnswerTask, Decoding, QaAnswerMode
from judgelm.records import Sample, Span
from judgelm.runs.runner import drive as run
from tests.support.flows import broken, drive, reply

QUESTION = Sample(id="7", question="why?", answers=())
DRAW = AnswerTask(QUESTION, Decoding())


def test_a_chat_model_gets_messages():
    [[request]], answer = drive(AnswerMode(system="Be brief."), [reply(" so \n")], sample=DRAW)
    assert request.prompt.chat
    assert request.prompt.spans == (Span("Be brief.", "template", "system"), Span("why?", "question", "user"))
    assert (answer.text, answer.failure, answer.finish_reason) == ("so", None, "stop")


def test_a_base_model_gets_text_and_is_stopped_before_it_asks_on():
    [[request]], _ = drive(AnswerMode(chat=False), [reply("so")], sample=DRAW)
    assert "".join(span.text for span in request.prompt.spans) == "Question: why?\nAnswer:"
    assert request.sampling.stop == ("\nQuestion:",)


def test_a_decoding_has_a_name_and_the_question_its_own_seed():
    warm = AnswerTask(QUESTION, Decoding(temperature=0.7, seed=1))
    assert (DRAW.decoding.name, warm.decoding.name) == ("greedy", "temperature=0.7,seed=1")
    [[one]], _ = drive(AnswerMode(), [reply("x")], sample=warm)
    [[two]], _ = drive(AnswerMode(), [reply("x")], sample=AnswerTask(QUESTION, Decoding(temperature=0.7, seed=2)))
    assert one.sampling.temperature == two.sampling.temperature == 0.7
    assert one.sampling.seed != two.sampling.seed


def test_another_question_under_the_same_id_is_another_draw():
    assert DRAW.id != AnswerTask(Sample(id="7", question="how?", answers=()), Decoding()).id


def test_what_was_not_answered_has_no_text():
    _, answer = drive(AnswerMode(), [broken()], sample=DRAW)
    assert (answer.text, answer.failure.code, answer.failure.why) == (None, "engine", "out of order")


def test_the_runner_drives_answers_as_it_drives_judgments():
    draws = [AnswerTask(Sample(id=str(i), question=f"q{i}", answers=()), Decoding()) for i in range(20)]
    engine = ScriptedEngine(lambda prompt: prompt.spans[-1].text.upper(), max_in_flight=3)
    assert {one.draw.question.id: one.text for one in run(draws, AnswerMode(), engine)} == {
        str(i): f"Q{i}" for i in range(20)
    }


def test_a_plain_form_needs_a_place_for_the_question():
    with pytest.raises(ConfigError, match="it must hold"):
        AnswerMode(plain="Question:")


SAMPLE = Sample(id="1", question="Which city?", answers=(), metadata={"context": "Paris lies on the Seine."})


def predicted(completion, **options):
    flow = QaAnswerMode(**options)(SAMPLE)
    next(flow)
    with pytest.raises(StopIteration) as ended:
        flow.send([completion])
    return ended.value.value


def test_the_answer_stands_in_the_last_tags():
    found = predicted(reply("First <ans> Rome </ans>, no: <ans> Paris </ans>."))
    assert (found.sample_id, found.answer, found.failure) == ("1", "Paris", None)
    assert found.text.startswith("First")


def test_the_original_rule_takes_the_first_tags_or_all():
    assert predicted(reply("<ans>Rome</ans> <ans>Paris</ans>"), tags="first").answer == "Rome"
    assert predicted(reply("Paris "), tags="first").answer == "Paris"


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        (reply("Paris"), "off_grammar"),
        (reply("<ans> </ans>"), "off_grammar"),
        (reply("Let me think", finish="length"), "truncated"),
        (broken("error"), "engine"),
        (broken("too_long"), "too_long"),
    ],
)
def test_without_an_answer_there_is_a_failure(completion, code):
    found = predicted(completion)
    assert (found.answer, found.failure.code) == (None, code)


def test_question_and_context_are_asked_through_the_runner():
    engine = ScriptedEngine({"Which city?|Paris lies on the Seine.": "<ans>Paris</ans>"})
    [found] = run([SAMPLE], QaAnswerMode(), engine)
    assert found.answer == "Paris"


def test_a_question_without_context_is_refused():
    with pytest.raises(InputError, match='no "context"'):
        next(QaAnswerMode()(Sample(id="1", question="q", answers=())))


@pytest.mark.parametrize("options", [{"tags": "third"}, {"max_tokens": 0}])
def test_options_that_do_not_exist_are_refused(options):
    with pytest.raises(ConfigError):
        QaAnswerMode(**options)
