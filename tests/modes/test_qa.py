"""Whether a short answer is right: exact match first, then the judge."""

import math

import pytest

from judgelm.errors import ConfigError, InputError
from judgelm.modes.qa import QaCorrectness
from judgelm.records import Completion, LabelVerdict, Sample
from tests.support.flows import broken, drive, reply


def qa(answer, reference="Paris", number="1", **metadata):
    return Sample(id=number, question="Which city?", answers=(answer,), reference=reference, metadata=metadata)


def judged(text, *, finish="stop", sample=None, **options):
    [asked], judgment = drive(QaCorrectness(**options), [reply(text, finish=finish)], sample=sample or qa("Lutetia"))
    assert len(asked) == 1
    return judgment


def asked_nothing(mode, sample):
    with pytest.raises(StopIteration) as ended:
        next(mode(sample))
    return ended.value.value


def test_an_exact_match_is_correct_without_asking():
    judgment = asked_nothing(QaCorrectness(), qa("paris."))
    assert judgment.verdict == LabelVerdict(label="correct")
    assert (judgment.decided_by, judgment.shown, judgment.prompt_tokens) == ("exact_match", (), 0)


def test_any_validated_answer_is_a_match_unless_only_the_first_counts():
    sample = qa("Lutetia", references=["Paris", "Lutetia"])
    assert asked_nothing(QaCorrectness(), sample).decided_by == "exact_match"
    assert judged("<ans>CORRECT</ans>", sample=sample, validated=False).decided_by == "judge"


def test_judge_all_asks_about_a_match_too():
    judgment = judged("<ans>INCORRECT</ans>", sample=qa("Paris"), judge_all=True)
    assert (judgment.verdict, judgment.decided_by) == (LabelVerdict(label="incorrect"), "judge")


def test_the_strict_match_asks_where_hotpots_does_not():
    assert asked_nothing(QaCorrectness(), qa("-5", "5")).decided_by == "exact_match"
    assert judged("<ans>INCORRECT</ans>", sample=qa("-5", "5"), exact="strict").decided_by == "judge"


@pytest.mark.parametrize("judge_all", [False, True])
def test_a_blank_answer_is_incorrect_without_asking(judge_all):
    judgment = asked_nothing(QaCorrectness(judge_all=judge_all), qa("  "))
    assert (judgment.verdict, judgment.decided_by) == (LabelVerdict(label="incorrect"), "blank_answer")


@pytest.mark.parametrize(("word", "label"), [("CORRECT", "correct"), ("INCORRECT", "incorrect")])
def test_the_judge_decides_the_rest(word, label):
    judgment = judged(f"They mean the same place.\n<ans> {word} </ans>")
    assert judgment.verdict == LabelVerdict(label=label)
    assert (judgment.shown[0].label, judgment.decided_by, judgment.failure) == (label, "judge", None)
    assert (judgment.prompt_tokens, judgment.completion_tokens) == (10, 3)


@pytest.mark.parametrize(
    ("text", "finish", "code"),
    [
        ("<ans> Partially CORRECT </ans>", "stop", "off_grammar"),
        ("", "stop", "off_grammar"),
        ("CORRECT", "length", "truncated"),
        ("<ans> CORRECT", "length", "truncated"),
        ("<ans> CORRECT </ans> but", "length", "truncated"),
    ],
)
def test_an_unreadable_reply_is_a_failure_and_never_incorrect(text, finish, code):
    judgment = judged(text, finish=finish)
    assert (judgment.verdict, judgment.failure.code, judgment.shown[0].text) == (None, code, text)


@pytest.mark.parametrize(
    ("labels", "text", "label", "unread"),
    [
        ("original", "<ans> CORRECT </ans>", "correct", False),
        ("original", "<ans> Correct </ans>", "incorrect", True),
        ("original", "<ans>A</ans> then <ans>CORRECT</ans>", "incorrect", True),
        ("original_mistral", "<ans>A</ans> then <ans>CORRECT</ans>", "correct", False),
        ("original_mistral", "CORRECT", "incorrect", True),
    ],
)
def test_the_original_rules_call_the_unreadable_incorrect_and_say_so(labels, text, label, unread):
    judgment = judged(text, labels=labels)
    assert (judgment.verdict, judgment.failure) == (LabelVerdict(label=label), None)
    assert (judgment.shown[0].failure is not None) is unread


def test_the_original_rule_reads_what_was_cut_off_behind_the_label():
    assert judged("<ans> CORRECT </ans> but", finish="length", labels="original").failure is None
    assert judged("<ans> CORREC", finish="length", labels="original").shown[0].failure.code == "truncated"


def with_probability(text, logprobs):
    second = Completion(key="", texts=("x",), finish_reasons=("stop",), candidate_logprobs=logprobs, prompt_tokens=5)
    return drive(QaCorrectness(distribution=True), [reply(text)], [second], sample=qa("Lutetia"))


@pytest.mark.parametrize(
    ("text", "words", "before"),
    [
        ("INCORRECT? No.\n<ans> CORRECT </ans>", ("CORRECT", "INCORRECT"), "INCORRECT? No.\n<ans> "),
        ("<ans>**incorrect**</ans>", ("correct", "incorrect"), "<ans>**"),
        ("Correct.", ("Correct", "Incorrect"), ""),
    ],
)
def test_the_probability_is_asked_for_where_the_label_stands(text, words, before):
    # 0.6 against 0.2 of the probability: 3/4
    [_, [second]], judgment = with_probability(text, (math.log(0.6), math.log(0.2)))
    assert (second.candidates, second.prompt.prefill, second.sampling.reserve) == (words, before, 1024)
    assert judgment.probability == pytest.approx(3 / 4)
    assert (judgment.prompt_tokens, judgment.completion_tokens) == (15, 3)


@pytest.mark.parametrize("logprobs", [None, (math.log(0.2), math.log(0.1)), (-math.inf, -math.inf)])
def test_too_little_probability_is_none(logprobs):
    assert with_probability("CORRECT", logprobs)[1].probability is None


def test_without_a_label_no_probability_is_asked_for():
    _, judgment = drive(QaCorrectness(distribution=True), [reply("hm")], sample=qa("Lutetia"))
    assert (judgment.probability, judgment.failure.code) == (None, "off_grammar")


@pytest.mark.parametrize("labels", ["strict", "original"])
@pytest.mark.parametrize(("reason", "code"), [("error", "engine"), ("too_long", "too_long")])
def test_what_was_not_answered_is_a_failure_under_every_rule(labels, reason, code):
    _, judgment = drive(QaCorrectness(labels=labels), [broken(reason)], sample=qa("Lutetia"))
    assert (judgment.verdict, judgment.failure.code) == (None, code)


def test_the_context_is_shown_where_it_is_asked_for():
    sample = qa("Lutetia", context="Lutetia was the Roman town.")
    for with_context in (False, True):
        [[request]], _ = drive(QaCorrectness(with_context=with_context), [reply("<ans>CORRECT</ans>")], sample=sample)
        assert ("Roman town" in "".join(span.text for span in request.prompt.spans)) is with_context
    with pytest.raises(InputError, match='sample 1: no "context"'):
        next(QaCorrectness(with_context=True)(qa("Lutetia")))


def test_a_sample_without_reference_or_with_two_answers_is_refused():
    with pytest.raises(InputError, match="sample 1: QA needs one answer and a reference, got 1 and none"):
        next(QaCorrectness()(qa("x", reference=None)))
    with pytest.raises(InputError, match="got 2 and one"):
        next(QaCorrectness()(Sample(id="1", question="q", answers=("a", "b"), reference="c")))


@pytest.mark.parametrize(
    "options",
    [
        {"shots": 1},
        {"exact": "squad"},
        {"max_tokens": 0},
        {"distribution": True, "labels": "original"},
    ],
)
def test_options_that_do_not_exist_are_refused(options):
    with pytest.raises(ConfigError):
        QaCorrectness(**options)
