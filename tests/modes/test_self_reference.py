"""The judge's own answers, correctness beside them, and selective self-reference."""

import re
from dataclasses import replace

import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import InputError
from judgelm.modes.self_reference import Correctness, SelectiveSelfReference, Solver
from judgelm.records import Completion, LabelVerdict, Sample, SelfAnswer
from judgelm.serialization import judgment_from_row, judgment_row
from tests.support.driving import run
from tests.support.flows import broken, drive, reply, text_of

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


def test_all_answers_are_one_request_drawn_with_the_samples_seed():
    [request] = next(solver()(SAMPLE))
    [again], [other] = next(solver()(SAMPLE)), next(solver()(replace(SAMPLE, id="2")))
    assert (request.sampling.n, request.sampling.temperature, request.sampling.max_tokens) == (3, 0.7, 100)
    assert request.sampling.seed == again.sampling.seed != other.sampling.seed


def test_answers_are_extracted_in_the_order_drawn():
    solved = solve(solver(), "The answer is 18.", "I do not know.", "The answer is $18.0")
    assert [answer.answer for answer in solved] == ["18", None, "18"]
    assert solved[1].text == "I do not know."
    cut_off = solve(solver(count=2), "The answer is 1", "The answer is 18.", finish=("length", "stop"))
    assert [answer.answer for answer in cut_off] == [None, "18"]
    options = replace(SAMPLE, metadata={"options": ["x", "y"]})
    letters = solve(solver(task="choice", count=2), "The answer is (B).", "The answer is (C).", sample=options)
    assert [answer.answer for answer in letters] == ["B", None]


def test_solves_of_an_earlier_run_are_reused():
    rows = [{"text": "The answer is 18.", "answer": "18"}, {"text": "hm", "answer": None}, {"text": "The answer is 7."}]
    sample = replace(SAMPLE, metadata={"solves": [*rows, {"text": "a fourth"}]})
    answers = [SelfAnswer(text=row["text"], answer=answer) for row, answer in zip(rows, ("18", None, "7"), strict=True)]
    assert solve(solver(), sample=sample) == tuple(answers)


@pytest.mark.parametrize(
    ("solves", "finding"),
    [
        ([{"text": "a"}], "expected 3 solves, got 1"),
        ("abc", "expected a list of {text, answer}"),
        (["a", "b", "c"], "one of the solves has no text"),
        ([{"text": "a", "answer": 18}] * 3, "the answer of one of the solves is not a string"),
    ],
)
def test_invalid_solves_are_rejected(solves, finding):
    with pytest.raises(InputError, match=f'sample 1: field "solves": {re.escape(finding)}'):
        next(solver()(replace(SAMPLE, metadata={"solves": solves})))


def test_five_solves_read_the_question_once(tiny_model):
    engine = load_engine("transformers", EngineOptions(model=str(tiny_model)))
    tokens = []
    count = lambda module, args, kwargs: tokens.append(kwargs["input_ids"].shape[1])  # noqa: E731
    engine._loaded.model.register_forward_pre_hook(count, with_kwargs=True)
    [request] = next(solver(count=5, max_tokens=8, chat=False)(SAMPLE))
    [done] = run(engine, [request]).values()
    engine.close()
    # a reply's last token is never given back to the model, so n replies of t tokens in all take t - n
    assert sum(tokens) == done.prompt_tokens + done.completion_tokens - 5
    assert len(set(done.texts)) > 1  # and they are five draws, not one five times


CORRECTNESS_SAMPLE = Sample(id="1", question="How many?", answers=("The answer is 11.",), reference="17")

SOLVE = reply("20 / 2 is 10. The answer is 17.", prompt_tokens=7, completion_tokens=9)


@pytest.mark.parametrize("label", ["correct", "incorrect"])
def test_cot_asks_once_and_takes_the_label(label):
    asked, judgment = drive(Correctness(task="number"), [reply(f"So.\n[[{label.title()}]]")], sample=CORRECTNESS_SAMPLE)
    assert [len(requests) for requests in asked] == [1]
    assert judgment.verdict == LabelVerdict(label=label)
    assert (judgment.shown[0].label, judgment.shown[0].referenced, judgment.own_reference) == (label, False, None)
    assert judgment.self_answers == ()


def test_guided_solves_first_and_shows_the_whole_of_it():
    mode = Correctness(task="number", self_reference="guided")
    asked, judgment = drive(mode, [SOLVE], [reply("[[Incorrect]]")], sample=CORRECTNESS_SAMPLE)
    assert (asked[0][0].sampling.n, asked[0][0].sampling.temperature) == (1, 0.0)
    assert "Answer]\n20 / 2 is 10. The answer is 17.\n[The End of Reference Answer]" in text_of(asked[1][0].prompt)
    assert judgment.verdict == LabelVerdict(label="incorrect")
    assert judgment.self_answers == (SelfAnswer(text=SOLVE.texts[0], answer="17"),)
    assert (judgment.own_reference, judgment.shown[0].referenced) == (SOLVE.texts[0], True)
    # 7 + 10 and 9 + 3
    assert (judgment.prompt_tokens, judgment.completion_tokens) == (17, 12)
    assert judgment_from_row(judgment_row(judgment)) == judgment


def test_guided_uses_the_first_saved_solve():
    rows = [{"text": "17!", "answer": "17"}, {"text": "11", "answer": "11"}]
    mode = Correctness(task="number", self_reference="guided")
    sample = replace(CORRECTNESS_SAMPLE, metadata={"solves": rows})
    [_], judgment = drive(mode, [reply("[[Incorrect]]")], sample=sample)
    assert (judgment.own_reference, len(judgment.self_answers)) == ("17!", 1)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (reply("It is right."), "off_grammar"),
        (reply("[[Correct]] and so on", finish="length"), "truncated"),
        (broken("error"), "engine"),
    ],
)
def test_a_missing_label_is_a_failure_and_never_incorrect(bad, code):
    _, judgment = drive(Correctness(distribution=True), [bad], sample=CORRECTNESS_SAMPLE)
    assert (judgment.verdict, judgment.failure.code, judgment.probability) == (None, code, None)
    assert judgment.shown[0].label is None


@pytest.mark.parametrize(
    ("written", "before", "words"),
    [
        ("So\n**[[Correct]]**", "So\n**[[", ("Correct", "Incorrect")),
        ("[[incorrect]]", "[[", ("correct", "incorrect")),
        ("Verdict: CORRECT", "Verdict: ", ("CORRECT", "INCORRECT")),
    ],
)
def test_the_probability_is_requested_at_the_label(written, before, words):
    rounds = [reply(written)], [reply("C", shares=(0.6, 0.2))]
    [[first], [request]], judgment = drive(Correctness(distribution=True), *rounds, sample=CORRECTNESS_SAMPLE)
    assert request.prompt == replace(first.prompt, prefill=before)
    assert (request.candidates, request.sampling.max_tokens, request.sampling.reserve) == (words, 1, 1024)
    assert judgment.probability == pytest.approx(0.75)  # 0.6 of 0.8


def test_the_meta_judge_is_asked_about_a_verdict_on_a_pair():
    sample = Sample(id="1", question="q", answers=("B rhymes. [[B]]",), metadata={"pair": ["Roses", "Violets"]})
    mode = Correctness(task="preference", self_reference="guided")
    asked, judgment = drive(mode, [reply("A scans. [[A]]")], [reply("**[[Incorrect]]**")], sample=sample)
    assert "Your job is to evaluate which assistant's answer is better" in text_of(asked[0][0].prompt)
    assert "impartial meta-judge" in text_of(asked[1][0].prompt)
    assert judgment.self_answers == (SelfAnswer(text="A scans. [[A]]", answer="A"),)
    assert judgment.verdict == LabelVerdict(label="incorrect")


def test_base_models_are_stopped_where_they_begin_another_question():
    [chat] = next(Correctness()(CORRECTNESS_SAMPLE))
    [plain] = next(Correctness(chat=False)(CORRECTNESS_SAMPLE))
    assert chat.sampling.stop == ()
    assert "\n[User Question]" in plain.sampling.stop


PAIR = Sample(id="1", question="q", answers=("It is (A).", "It is (B)."))

FIRST = [reply("[[1]]"), reply("[[2]]")]  # the sample's first, in both orders


def solves(letters):
    """A completion with one solve per letter; `-` is a solve without an answer."""
    texts = tuple("I do not know." if letter == "-" else f"The answer is ({letter})." for letter in letters)
    completion = reply("", prompt_tokens=20, completion_tokens=50)
    return [replace(completion, texts=texts, finish_reasons=("stop",) * len(texts))]


def saved(letters):
    rows = [{"text": f"so {letter}", "answer": None if letter == "-" else letter} for letter in letters]
    return replace(PAIR, metadata={"solves": rows})


@pytest.mark.parametrize(
    ("letters", "tau", "shown"),
    [
        ("AAAAB", 0.8, "A"),  # 4/5 is 0.8: on
        ("AAABB", 0.8, None),  # 3/5
        ("AAABB", 0.6, "A"),
        ("AAAA-", 0.8, "A"),  # 4 of 5: the one without an answer stays in k ...
        ("AAA--", 0.8, None),  # ... so 3 of 3 that have one are not unanimous
        ("-----", 0.0, None),
        ("BAABC", 0.4, "B"),  # 2-2-1: the one drawn first
    ],
)
def test_the_gate(letters, tau, shown):
    asked, judgment = drive(SelectiveSelfReference(tau=tau), solves(letters), FIRST, sample=PAIR)
    assert judgment.own_reference == shown
    assert drive(SelectiveSelfReference(tau=tau), FIRST, sample=saved(letters))[1].own_reference == shown
    assert [order.referenced for order in judgment.shown] == [shown is not None] * 2
    for request in asked[1]:
        assert ("the correct answer is" in text_of(request.prompt)) == (shown is not None)
        assert f"the correct answer is {shown}." in text_of(request.prompt) or shown is None
        assert "The answer is (" not in text_of(request.prompt)  # the answer alone, never its reasoning


def test_always_shows_the_majority_and_never_asks_for_none():
    _, judgment = drive(SelectiveSelfReference(when="always"), solves("ABCDE"), FIRST, sample=PAIR)
    assert judgment.own_reference == "A"
    _, judgment = drive(SelectiveSelfReference(when="always"), solves("-----"), FIRST, sample=PAIR)
    assert (judgment.own_reference, judgment.shown[0].referenced) == (None, False)
    [_], judgment = drive(SelectiveSelfReference(when="never"), FIRST, sample=PAIR)
    assert judgment.self_answers == ()
    _, judgment = drive(SelectiveSelfReference(when="never"), FIRST, sample=saved("AAAB-"))
    assert (len(judgment.self_answers), judgment.own_reference) == (5, None)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (reply("no idea"), "off_grammar"),
        (reply("First, [[1]]", finish="length"), "truncated"),
        (broken("too_long"), "too_long"),
    ],
)
def test_an_order_that_failed_fails_the_judgment_unless_one_is_enough(bad, code):
    _, judgment = drive(SelectiveSelfReference(when="never"), [reply("[[1]]"), bad], sample=PAIR)
    assert (judgment.verdict, judgment.failure.code, judgment.consistent) == (None, code, None)
    _, judgment = drive(SelectiveSelfReference(when="never", accept_one_order=True), [reply("[[1]]"), bad], sample=PAIR)
    assert (judgment.winner, judgment.failure, judgment.consistent) == (1, None, None)


def test_tokens_of_solves_and_orders_are_added_and_the_solves_kept():
    _, judgment = drive(SelectiveSelfReference(), solves("AAAAB"), FIRST, sample=PAIR)
    # 20 + 10 + 10 and 50 + 3 + 3
    assert (judgment.prompt_tokens, judgment.completion_tokens) == (40, 56)
    assert [solve.answer for solve in judgment.self_answers] == list("AAAAB")


@pytest.mark.parametrize(("mode", "sample"), [(Correctness(), CORRECTNESS_SAMPLE), (SelectiveSelfReference(), PAIR)])
def test_the_reference_of_the_sample_is_never_shown(mode, sample):
    flow = mode(replace(sample, reference="the truth"))
    assert not any("the truth" in text_of(request.prompt) for request in next(flow))
    solved = replace(sample, reference="the truth", metadata={"solves": [{"text": "A", "answer": "A"}] * 5})
    assert not any("the truth" in text_of(request.prompt) for request in next(mode(solved)))


def test_a_probability_of_little_mass_or_of_one_order_only_is_none():
    mode = SelectiveSelfReference(when="never", distribution=True)
    labels = [reply("1", shares=(0.6, 0.2)), reply("1", shares=(0.1, 0.1))]
    assert drive(mode, FIRST, labels, sample=PAIR)[1].probability is None
    both = replace(mode, accept_one_order=True)
    assert drive(both, [reply("[[1]]"), reply("?")], labels[:1], sample=PAIR)[1].probability == pytest.approx(0.75)
