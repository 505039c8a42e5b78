"""Pointwise correctness: with the judge's own answer as the reference or without, and the meta-judge."""

import math
from dataclasses import replace
from functools import partial

import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError, InputError
from judgelm.modes.completions import ask_probabilities
from judgelm.modes.self_reference import Correctness
from judgelm.parsing.verdicts import read_verdict
from judgelm.records import Completion, LabelVerdict, Prompt, Sample, SelfAnswer, Shown, Span
from judgelm.runs.runner import judge
from judgelm.runs.serialization import judgment_from_row, judgment_row
from tests.support.driving import run
from tests.support.flows import broken, drive, reply

SAMPLE = Sample(id="1", question="How many?", answers=("The answer is 11.",), reference="17")
SOLVE = reply("20 / 2 is 10. The answer is 17.", prompt_tokens=7, completion_tokens=9)
LABELS = {"correct": "Correct", "incorrect": "Incorrect"}


def text_of(request):
    return "".join(span.text for span in request.prompt.spans)


@pytest.mark.parametrize("label", ["correct", "incorrect"])
def test_cot_asks_once_and_takes_the_label(label):
    asked, judgment = drive(Correctness(task="number"), [reply(f"So.\n[[{label.title()}]]")], sample=SAMPLE)
    assert [len(one) for one in asked] == [1]
    assert judgment.verdict == LabelVerdict(label=label)
    assert (judgment.shown[0].label, judgment.shown[0].referenced, judgment.own_reference) == (label, False, None)
    assert judgment.self_answers == ()


def test_the_samples_reference_is_never_shown():
    asked, _ = drive(Correctness(task="number"), [reply("[[Correct]]")], sample=SAMPLE)
    assert "17" not in text_of(asked[0][0])


def test_guided_solves_first_and_shows_the_whole_of_it():
    mode = Correctness(task="number", self_reference="guided")
    asked, judgment = drive(mode, [SOLVE], [reply("[[Incorrect]]")], sample=SAMPLE)
    assert (asked[0][0].sampling.n, asked[0][0].sampling.temperature) == (1, 0.0)
    assert "Answer]\n20 / 2 is 10. The answer is 17.\n[The End of Reference Answer]" in text_of(asked[1][0])
    assert judgment.verdict == LabelVerdict(label="incorrect")
    assert judgment.self_answers == (SelfAnswer(text=SOLVE.texts[0], answer="17"),)
    assert (judgment.own_reference, judgment.shown[0].referenced) == (SOLVE.texts[0], True)
    # 7 + 10 and 9 + 3
    assert (judgment.prompt_tokens, judgment.completion_tokens) == (17, 12)
    assert judgment_from_row(judgment_row(judgment)) == judgment


def test_guided_takes_the_first_saved_solve_and_asks_for_none():
    sample = replace(SAMPLE, metadata={"solves": [{"text": "17!", "answer": "17"}, {"text": "11", "answer": "11"}]})
    mode = Correctness(task="number", self_reference="guided")
    asked, judgment = drive(mode, [reply("[[Incorrect]]")], sample=sample)
    assert len(asked) == 1
    assert judgment.own_reference == "17!"
    assert len(judgment.self_answers) == 1


def test_a_solve_without_an_answer_is_shown_all_the_same():
    mode = Correctness(task="number", self_reference="guided")
    _, judgment = drive(mode, [reply("I cannot tell.")], [reply("[[Correct]]")], sample=SAMPLE)
    assert (judgment.own_reference, judgment.self_answers[0].answer) == ("I cannot tell.", None)


def test_a_solve_that_failed_is_the_judgments_failure():
    _, judgment = drive(Correctness(self_reference="guided"), [broken("error")], sample=SAMPLE)
    assert (judgment.verdict, judgment.failure.code, judgment.shown) == (None, "engine", ())


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (reply("It is right."), "off_grammar"),
        (reply("[[Correct]] if so, [[Incorrect]] if not"), "off_grammar"),
        (reply("[[Correct]] and so on", finish="length"), "truncated"),
        (broken("error"), "engine"),
        (broken("too_long"), "too_long"),
    ],
)
def test_what_is_no_label_is_a_failure_never_incorrect(bad, code):
    _, judgment = drive(Correctness(distribution=True), [bad], sample=SAMPLE)
    assert (judgment.verdict, judgment.failure.code, judgment.probability) == (None, code, None)
    assert judgment.shown[0].label is None


def label_reply(correct, incorrect):
    return Completion(
        key="", texts=("C",), finish_reasons=("length",), candidate_logprobs=(math.log(correct), math.log(incorrect))
    )


@pytest.mark.parametrize(
    ("written", "before", "words"),
    [
        ("So\n**[[Correct]]**", "So\n**[[", ("Correct", "Incorrect")),
        ("[[incorrect]]", "[[", ("correct", "incorrect")),
        ("Verdict: CORRECT", "Verdict: ", ("CORRECT", "INCORRECT")),
    ],
)
def test_probability_is_asked_for_where_the_label_stands(written, before, words):
    asked, judgment = drive(Correctness(distribution=True), [reply(written)], [label_reply(0.6, 0.2)], sample=SAMPLE)
    [request] = asked[1]
    assert request.prompt == replace(asked[0][0].prompt, prefill=before)
    assert (request.candidates, request.sampling.max_tokens, request.sampling.reserve) == (words, 1, 1024)
    assert judgment.probability == pytest.approx(0.75)  # 0.6 of 0.8


@pytest.mark.parametrize("found", [label_reply(0.2, 0.2), reply("C"), broken("error")])
def test_without_enough_mass_or_without_log_probabilities_there_is_none(found):
    _, judgment = drive(Correctness(distribution=True), [reply("[[Correct]]")], [found], sample=SAMPLE)
    assert judgment.probability is None
    assert judgment.verdict == LabelVerdict(label="correct")


def test_a_real_model_is_asked_behind_its_own_reply(tiny_model):
    engine = load_engine("transformers", EngineOptions(model=str(tiny_model)))
    shown = Shown(order=(0,), text="fox [[Correct]]", label="correct")
    read = partial(read_verdict, labels=LABELS)
    flow = ask_probabilities([shown], [Prompt(spans=(Span("what is it"),))], LABELS, read, max_tokens=16)
    [request] = next(flow)
    [done] = run(engine, [request]).values()
    engine.close()
    correct, incorrect = (math.exp(one) for one in done.candidate_logprobs)
    # random weights spread their mass over all tokens, so the two words have too little for a P(correct)
    assert 0 < correct + incorrect < 0.5
    with pytest.raises(StopIteration) as finished:
        flow.send([done])
    assert finished.value.value == [None]


def test_the_meta_judge_is_asked_about_a_verdict_on_a_pair():
    sample = Sample(id="1", question="q", answers=("B rhymes. [[B]]",), metadata={"pair": ["Roses", "Violets"]})
    mode = Correctness(task="preference", self_reference="guided")
    asked, judgment = drive(mode, [reply("A scans. [[A]]")], [reply("**[[Incorrect]]**")], sample=sample)
    assert "Your job is to evaluate which assistant's answer is better" in text_of(asked[0][0])
    assert "impartial meta-judge" in text_of(asked[1][0])
    assert judgment.self_answers == (SelfAnswer(text="A scans. [[A]]", answer="A"),)
    assert judgment.verdict == LabelVerdict(label="incorrect")


def test_a_run_through_the_runner():
    def script(prompt):
        text = "".join(span.text for span in prompt.spans)
        return "[[Incorrect]]" if "Reference Answer]\nThe answer is 17." in text else "The answer is 17."

    [judgment] = judge([SAMPLE], Correctness(task="number", self_reference="guided"), ScriptedEngine(script))
    assert judgment.verdict == LabelVerdict(label="incorrect")


def test_base_models_are_stopped_where_they_begin_another_question():
    [chat] = next(Correctness()(SAMPLE))
    [plain] = next(Correctness(chat=False)(SAMPLE))
    assert chat.sampling.stop == ()
    assert "\n[User Question]" in plain.sampling.stop


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"temperature": -1}, "temperature is -1"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, finding):
    with pytest.raises(ConfigError, match=finding):
        Correctness(**options)


def test_one_answer_is_judged_at_a_time():
    with pytest.raises(InputError, match="sample 1: expected 1 answer, got 2"):
        next(Correctness()(Sample(id="1", question="q", answers=("a", "b"))))
