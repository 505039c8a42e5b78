"""Short answers to be judged later."""

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError, InputError
from judgelm.modes.qa_answer import QaAnswering
from judgelm.records import Sample
from judgelm.runs.runner import drive
from tests.support.flows import broken, reply

SAMPLE = Sample(id="1", question="Which city?", answers=(), metadata={"context": "Paris lies on the Seine."})


def predicted(completion, **options):
    flow = QaAnswering(**options)(SAMPLE)
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
    [found] = drive([SAMPLE], QaAnswering(), engine)
    assert found.answer == "Paris"


def test_a_question_without_context_is_refused():
    with pytest.raises(InputError, match='no "context"'):
        next(QaAnswering()(Sample(id="1", question="q", answers=())))


@pytest.mark.parametrize("options", [{"tags": "third"}, {"max_tokens": 0}])
def test_options_that_do_not_exist_are_refused(options):
    with pytest.raises(ConfigError):
        QaAnswering(**options)
