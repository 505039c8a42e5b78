"""The judge's own answers: one request for all, agreement, and what an earlier run left."""

import re

import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import ConfigError, InputError
from judgelm.modes.self_reference import Solver
from judgelm.records import Completion, Sample, SelfAnswer
from tests.support.driving import run

SAMPLE = Sample(id="1", question="How many?", answers=())


def solver(**options):
    return Solver(**({"task": "number", "count": 3, "temperature": 0.7, "max_tokens": 100} | options))


def solve(mode, *texts, finish=None, sample=SAMPLE):
    """What the mode makes of these replies; without any it must ask nothing."""
    flow = mode(sample)
    try:
        [request] = next(flow)
        reasons = finish or ("stop",) * len(texts)
        flow.send([Completion(key="", texts=texts, finish_reasons=reasons, prompt_tokens=9, completion_tokens=4)])
    except StopIteration as finished:
        return finished.value
    raise AssertionError(f"the flow goes on after {request.key}")


def given(*answers):
    return [SelfAnswer(text=f"so {answer}", answer=answer) for answer in answers]


def test_all_answers_are_one_request_drawn_with_the_samples_seed():
    [request] = next(solver()(SAMPLE))
    [again] = next(solver()(SAMPLE))
    [other] = next(solver()(Sample(id="2", question="How many?", answers=())))
    assert (request.sampling.n, request.sampling.temperature, request.sampling.max_tokens) == (3, 0.7, 100)
    assert request.sampling.seed == again.sampling.seed != other.sampling.seed


def test_answers_are_extracted_and_kept_in_the_order_drawn():
    solved = solve(solver(), "The answer is 18.", "I do not know.", "The answer is $18.0")
    assert [answer.answer for answer in solved] == ["18", None, "18"]
    assert solved[1].text == "I do not know."


def test_a_solve_that_was_cut_off_has_no_answer():
    solved = solve(solver(count=2), "The answer is 1", "The answer is 18.", finish=("length", "stop"))
    assert [answer.answer for answer in solved] == [None, "18"]


def test_letters_end_with_the_questions_options():
    sample = Sample(id="1", question="q", answers=(), metadata={"options": ["x", "y"]})
    solved = solve(solver(task="choice", count=2), "The answer is (B).", "The answer is (C).", sample=sample)
    assert [answer.answer for answer in solved] == ["B", None]


@pytest.mark.parametrize(("finish", "code"), [("error", "engine"), ("too_long", "too_long")])
def test_a_request_that_failed_is_a_failure_and_no_solve(finish, code):
    flow = solver()(SAMPLE)
    next(flow)
    with pytest.raises(StopIteration) as finished:
        flow.send([Completion(key="", texts=(), finish_reasons=(finish,), error="why")])
    assert finished.value.value.code == code


def test_solves_of_an_earlier_run_are_used_and_nothing_is_asked():
    rows = [{"text": "The answer is 18.", "answer": "18"}, {"text": "hm", "answer": None}, {"text": "The answer is 7."}]
    sample = Sample(id="1", question="q", answers=(), metadata={"solves": [*rows, {"text": "a fourth"}]})
    expected = (
        SelfAnswer(text="The answer is 18.", answer="18"),
        SelfAnswer(text="hm"),
        SelfAnswer(text="The answer is 7.", answer="7"),
    )
    assert solve(solver(), sample=sample) == expected


@pytest.mark.parametrize(
    ("solves", "finding"),
    [
        ([{"text": "a"}], "expected 3 solves, got 1"),
        ("abc", "expected a list of {text, answer}"),
        (["a", "b", "c"], "a solve has no text"),
        ([{"text": "a", "answer": 18}] * 3, "a solve's answer is no text"),
    ],
)
def test_what_is_no_solve_is_refused_by_name(solves, finding):
    with pytest.raises(InputError, match=f'sample 1: field "solves": {re.escape(finding)}'):
        next(solver()(Sample(id="1", question="q", answers=(), metadata={"solves": solves})))


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ({"count": 0}, "0 solves of 100 tokens"),
        ({"temperature": -1}, "solve temperature is -1"),
        ({"temperature": 0}, "3 solves at temperature 0 are all the same"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, finding):
    with pytest.raises(ConfigError, match=finding):
        solver(**options)


@pytest.fixture
def counting_engine(tiny_model):
    """The embedded engine, and the tokens that its model was given, pass by pass."""
    engine = load_engine("transformers", EngineOptions(model=str(tiny_model)))
    tokens = []
    count = lambda module, args, kwargs: tokens.append(kwargs["input_ids"].shape[1])  # noqa: E731
    engine._loaded.model.register_forward_pre_hook(count, with_kwargs=True)
    yield engine, tokens
    engine.close()


def test_five_solves_read_the_question_once(counting_engine):
    engine, tokens = counting_engine
    read = {}
    for count in (1, 5):
        tokens.clear()
        [request] = next(solver(count=count, max_tokens=8, chat=False)(SAMPLE))
        [done] = run(engine, [request]).values()
        assert len(done.texts) == count
        # a reply's last token is never given back to the model, so n replies of t tokens in all take t - n
        read[count] = sum(tokens) - (done.completion_tokens - count)
    assert read[1] > 30
    assert read[5] <= 1.2 * read[1]
    assert len(set(done.texts)) > 1  # and they are five draws, not one five times
